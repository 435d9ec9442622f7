-- schedule: writes a schedule, if nobody has changed it since the caller read it.
-- keys: schedules, ticks, counts, settings, wake
-- ARGV[1] now_ms or ''
-- ARGV[2] the topic's number of shards, as the caller knows it
-- ARGV[3] id
-- ARGV[4] the version that the caller read; '0' = there was none
-- ARGV[5] when its next occurrence is due; '' = none
-- ARGV[6] how many occurrences the caller passed over, because they were missed
-- ARGV[7] the rest of the record, after the version
-- returns 1 = written; 0 = it has another version; -1 = the caller's settings of the topic are out of date
-- include: clock, notify_mover, stored_format
local id, missed = ARGV[3], tonumber(ARGV[6])

local topic = redis.call('HMGET', settings, 'shards', 'format')
check_format(topic[2])
if topic[1] ~= ARGV[2] then return -1 end
local version, before = string.match(redis.call('HGET', schedules, id) or '0\n', '^(%d+)\n(%l*)')
if version ~= ARGV[4] then return 0 end

redis.call('HSET', schedules, id, string.format('%.0f', version + 1) .. '\n' .. ARGV[7])
local paused = (string.match(ARGV[7], '^%l+') == 'paused' and 1 or 0) - (before == 'paused' and 1 or 0)
if paused ~= 0 then redis.call('HINCRBY', counts, 'paused', paused) end
if missed > 0 then redis.call('HINCRBY', counts, 'missed', missed) end
if ARGV[5] == '' then
  redis.call('ZREM', ticks, id)
else
  local head = head_ms(ticks)
  redis.call('ZADD', ticks, ARGV[5], id)
  if not head or tonumber(ARGV[5]) < head then notify_mover(wake, math.max(now_ms(ARGV[1]), ARGV[5])) end
end
return 1
