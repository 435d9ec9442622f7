-- move: bucket -> ready stream, at most `limit` due jobs, oldest first; a group's retries -> that group's own stream.
-- KEYS[1] bucket    ZSET
-- KEYS[2] ready     STREAM
-- KEYS[3] counts    HASH
-- KEYS[4] settings  HASH
-- KEYS[5..] ready:GROUP  STREAM  in the order of ARGV[3]
-- ARGV[1] now_ms or ''
-- ARGV[2] limit
-- ARGV[3] groups, 'a,b'
-- ARGV[4] '1' = `permit` has granted the limit
-- returns {moved, now_ms, next_due_ms, open, ...}; moved -1 = the shard has other groups, which follow as 'a,b'; -2 =
-- the topic has a rate, and the caller has no permit; next_due_ms -1 = no job to wait for (empty or paused; a change of
-- that rings); open = ready or claimed jobs of all groups, or those that were moved, if any.
-- include: clock, progress, ring, settle, requeue, stored_format, move_due
local bucket, ready, counts, settings = unpack(KEYS)
local topic = redis.call('HMGET', settings, 'groups', 'paused', 'rate', 'format')
check_format(topic[4])
local k = {bucket = bucket, ready = ready, counts = counts, settings = settings, now = now_ms(ARGV[1]),
  groups = names(topic[1]), names = topic[1], waits = waits(topic[2], topic[3])}
local streams = {}
for i, group in ipairs(k.groups) do streams[group] = KEYS[4 + i] end
return (move_due(k, streams, tonumber(ARGV[2]), ARGV[3], ARGV[4]))
