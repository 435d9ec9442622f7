-- unschedule: removes a schedule. Its jobs stay.
-- KEYS[1] schedules  HASH  id -> record
-- KEYS[2] ticks      ZSET  id -> when its next occurrence is due
-- KEYS[3] counts     HASH  how many were removed, so that workers can tell that from a loss
-- KEYS[4] settings   HASH
-- ARGV[1] id
-- returns 1 = removed; 0 = there is none
-- include: stored_format
local schedules, ticks, counts, settings = unpack(KEYS)
check_format(redis.call('HGET', settings, 'format'))
redis.call('ZREM', ticks, ARGV[1])
local removed = redis.call('HDEL', schedules, ARGV[1])
if removed == 1 then redis.call('HINCRBY', counts, 'unscheduled', 1) end
return removed
