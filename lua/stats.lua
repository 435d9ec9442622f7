-- stats: reads a shard's counters and sizes at one moment. The audit balances them.
-- keys: counts, bucket, jobs, settings
-- keys of each group: dead
-- ARGV[1] now_ms or ''
-- returns {now_ms, first_due_ms, jobs, waiting, paused, {counter, value, ...}, {dead now of each group}, moved_at_ms,
-- groups, dumps, links};
-- first_due_ms -1 = the bucket is empty; waiting = first deliveries and retries in the bucket; moved_at_ms = when a job
-- was last moved, 0 = never yet;
-- groups = the shard's groups, 'a,b'; dumps = those registered, as register_dump keeps them, nil = none; links = {how many
-- jobs are blocked, how many endings are to be reported now, since when, ms}; {} = no jobs wait for others
-- runs while its slot moves
-- flags: no-writes
-- include: clock, link_key, notify_mover, stored_format
local topic = redis.call('HMGET', settings, 'paused', 'moved_at', 'groups', 'format', 'dumps', 'linked')
check_format(topic[4])
local dead = {}
for i = FIXED + 1, #KEYS do dead[#dead + 1] = redis.call('ZCARD', KEYS[i]) end
local now, links = now_ms(ARGV[1]), {}
if topic[6] then
  local s = shard(KEYS)
  local blocked, endings = link_key(s, 'blocked'), link_key(s, 'endings')
  local first = redis.call('ZRANGE', endings, 0, 0, 'WITHSCORES')[2]
  local undelivered = redis.call('ZCOUNT', endings, '-inf', string.format('%.0f', now))
  links = {redis.call('ZCARD', blocked), undelivered, undelivered > 0 and tonumber(first) or now}
end
return {now, head_ms(bucket) or -1, redis.call('HLEN', jobs), redis.call('ZCARD', bucket),
  topic[1] == '1' and 1 or 0, redis.call('HGETALL', counts), dead, tonumber(topic[2] or 0), topic[3] or '', topic[5], links}
