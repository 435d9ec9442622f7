-- record_flows: rows about flows that have ended are added to the history, and up to which of its entries the mover has looked
-- for such ends: settings field `flows_recorded`. Idempotent.
-- keys: counts, settings, history
-- ARGV[1] history cap
-- ARGV[2] up to which entry it had looked before; '' = none
-- ARGV[3] up to which it has looked now
-- ARGV[4..] rows (streamdq/store/history/rows.py)
-- returns 1 = done; 0 = another mover has looked meanwhile, or the topic was deleted
-- flags: allow-oom
-- include: history, stored_format
local known = redis.call('HMGET', settings, 'format', 'flows_recorded', 'shards')
check_format(known[1])
if not known[3] or (known[2] or '') ~= ARGV[2] then return 0 end
local s, rows = shard(KEYS), {}
s.history_cap = ARGV[1]
for i = 4, #ARGV, 1 do rows[#rows + 1] = ARGV[i] end
remember(s, rows)
redis.call('HSET', settings, 'flows_recorded', ARGV[3])
return 1
