-- pause_key: a key of the shard -> paused: no attempt of its jobs starts any more; those that run go on. Or back: then the
-- jobs that wait for it are admitted.
-- keys: bucket, counts, settings, wake, key_waiting, key_admitted, key_unstarted, key_counts, key_paused,
--   key_next_start
-- ARGV[1] now_ms or ''
-- ARGV[2] the topic's number of shards, as the caller knows it
-- ARGV[3] key
-- ARGV[4] '1' = pause it, '0' = let it go on
-- returns 1 = done; 0 = there are more jobs to admit, call again; -1 = the topic has no limit of keys; -2 = the caller's
-- settings of the topic are out of date; then nothing was changed
-- flags: allow-oom
-- include: clock, groups, key_limit, stored_format
local key = ARGV[3]
local topic = redis.call('HMGET', settings, 'shards', 'groups', 'format', 'key_limit')
check_format(topic[3])
if topic[1] ~= ARGV[2] then return -2 end
if (topic[4] or '0') == '0' and ARGV[4] == '1' then return -1 end
local s = shard(KEYS)
s.now, s.key_limit = now_ms(ARGV[1]), topic[4] or '0'
if ARGV[4] == '1' then
  redis.call('ZADD', key_paused, 0, key)
  return 1
end
redis.call('ZREM', key_paused, key)
local groups, more = names(topic[2]), false
-- If the caller is killed before it calls again: where a job is admitted, the others follow it.
for _, group in ipairs(groups) do admit_next(s, group .. '\31' .. key, 1) end
for _, group in ipairs(groups) do
  more = admit_next(s, group .. '\31' .. key, ADMIT_MANY) or more
  if has_admitted_enough(s) then return 0 end
end
return more and 0 or 1
