-- unschedule: removes a schedule. Its jobs stay.
-- KEYS[1] schedules  HASH  id -> record
-- KEYS[2] ticks      ZSET  id -> when its next occurrence is due
-- KEYS[3] settings   HASH
-- ARGV[1] id
-- returns 1 = removed; 0 = there is none
-- include: stored_format
check_format(redis.call('HGET', KEYS[3], 'format'))
redis.call('ZREM', KEYS[2], ARGV[1])
return redis.call('HDEL', KEYS[1], ARGV[1])
