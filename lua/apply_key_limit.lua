-- apply_key_limit: one step of applying a changed limit or pace of keys to the jobs that wait for their keys, or are admitted
-- and not due yet. The shard keeps track of how far this is (settings field `limit_applied_to`, which configure_shard sets:
-- the last group_key), so any process can continue, even several at once.
-- keys: bucket, counts, settings, wake, key_waiting, key_admitted, key_unstarted, key_counts, key_paused,
--   key_next_start
-- ARGV[1] now_ms or ''
-- ARGV[2] limit: how many keys to look at
-- returns 1 = there is more to do; 0 = the limit is applied
-- flags: allow-oom
-- include: clock, key_limit, key_limit_changes, key_tickets, stored_format
local topic = redis.call('HMGET', settings, 'limit_applied_to', 'key_limit', 'format')
check_format(topic[3])
local last = topic[1]
local s = shard(KEYS)
s.now, s.key_limit = now_ms(ARGV[1]), topic[2] or '0'
if not last then return 0 end
for _ = 1, tonumber(ARGV[2]) do
  -- Of each key with jobs, at least one is admitted.
  local group_key = next_group_key(key_admitted, last)
  if not group_key then
    if forget_starts(s) then return 1 end
    redis.call('HDEL', settings, 'limit_applied_to')
    return 0
  end
  local more = change_pace(s, group_key)
  more = enforce_limit(s, group_key) or more
  if admit_next(s, group_key, more and ADMIT_FEW or ADMIT_MANY) or more then return 1 end
  last = group_key
  redis.call('HSET', settings, 'limit_applied_to', last)
  if has_admitted_enough(s) then break end
end
return 1
