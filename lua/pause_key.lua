-- pause_key: a key of the shard -> paused: no attempt of its jobs starts any more; those that run go on. Or back: then the
-- jobs that wait for it get their places.
-- keys: bucket, counts, settings, wake, lanes, fronts, crowds
-- ARGV[1] now_ms or ''
-- ARGV[2] the topic's number of shards, as the caller knows it
-- ARGV[3] key
-- ARGV[4] '1' = pause it, '0' = let it go on
-- returns 1 = done; 0 = there are more places to give, call again; -1 = the topic has no limit of keys; -2 = the caller's
-- settings of the topic are out of date; then nothing was changed
-- flags: allow-oom
-- include: stored_format, clock, groups, progress, ring, lanes
local now, lane = now_ms(ARGV[1]), '\31' .. ARGV[3]
local topic = redis.call('HMGET', settings, 'shards', 'groups', 'format', 'key_limit')
check_format(topic[3])
if topic[1] ~= ARGV[2] then return -2 end
if (topic[4] or '0') == '0' and ARGV[4] == '1' then return -1 end
local k = shard(KEYS)
k.key_limit = topic[4] or '0'
if ARGV[4] == '1' then
  redis.call('ZADD', crowds, -1, lane)
  return 1
end
redis.call('ZREM', crowds, lane)
local groups, more = names(topic[2]), false
-- If the caller is killed before it calls again: where a job is out, the others follow it.
for _, group in ipairs(groups) do advance(k, group, group .. lane, now, 1) end
for _, group in ipairs(groups) do
  more = advance(k, group, group .. lane, now, OUT_AT_ONCE) or more
  if are_enough_given(k) then return 0 end
end
return more and 0 or 1
