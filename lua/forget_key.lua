-- forget_key: forgets what is kept of a key for which no job waits: that it is paused, and when its next job may start.
-- keys: settings, key_counts, key_paused, key_next_start
-- ARGV[1] '' = only count
-- ARGV[2] key
-- returns how much there was; 0 as well if jobs wait for the key
-- flags: allow-oom
-- include: groups, stored_format
local topic = redis.call('HMGET', settings, 'format', 'groups')
check_format(topic[1])
local all, found = names(topic[2]), redis.call('ZSCORE', key_paused, ARGV[2]) and 1 or 0
for _, group in ipairs(all) do
  local group_key = group .. '\31' .. ARGV[2]
  if redis.call('ZSCORE', key_counts, group_key) then return 0 end
  if redis.call('ZSCORE', key_next_start, group_key) then found = found + 1 end
end
if ARGV[1] == '' or found == 0 then return found end
redis.call('ZREM', key_paused, ARGV[2])
for _, group in ipairs(all) do redis.call('ZREM', key_next_start, group .. '\31' .. ARGV[2]) end
return found
