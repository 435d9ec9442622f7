-- move: bucket -> ready stream, at most `limit` due jobs, oldest first; a group's retries -> that group's own stream.
-- keys: bucket, ready, counts, settings
-- keys of each group: own
-- ARGV[1] now_ms or ''
-- ARGV[2] limit
-- ARGV[3] groups, 'a,b'
-- ARGV[4] '1' = `permit` has granted the limit
-- returns {moved, now_ms, next_due_ms, open, ...}; moved -1 = the shard has other groups, which follow as 'a,b'; -2 =
-- the topic has a rate, and the caller has no permit; next_due_ms -1 = no job to wait for (empty or paused; a change of
-- that rings); open = ready or claimed jobs of all groups, or those that were moved, if any.
-- flags: allow-oom
-- include: stored_format, clock, progress, ring, move_due, requeue, settle
local topic = redis.call('HMGET', settings, 'groups', 'paused', 'rate', 'format')
check_format(topic[4])
local k = shard(KEYS)
k.now, k.groups, k.names, k.waits = now_ms(ARGV[1]), names(topic[1]), topic[1], waits(topic[2], topic[3])
local streams = {}
for i, group in ipairs(k.groups) do streams[group] = KEYS[FIXED + i] end
return (move_due(k, streams, tonumber(ARGV[2]), ARGV[3], ARGV[4]))
