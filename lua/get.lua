-- get: reads one job and its progress in every group, at one moment.
-- KEYS[1] jobs      HASH
-- KEYS[2] bucket    ZSET
-- KEYS[3] progress  HASH
-- KEYS[4] settings  HASH
-- KEYS[5] lanes     ZSET
-- KEYS[6] keyed     HASH
-- ARGV[1] id
-- ARGV[2] the topic's number of shards, as the caller knows it; '' = the caller knows that the job is here
-- returns nil = the caller's settings of the topic are out of date; {} = no such job; {record, delayed, group, progress,
-- waits, ...}: delayed 1 = its first delivery is in the bucket; progress '' = not started; waits 1 = the group's next
-- attempt is in the bucket
-- include: progress, ring, settle, lanes, leaving_groups, group_states, stored_format
local jobs, bucket, progress, settings, lanes, keyed = unpack(KEYS)
local id, topic = ARGV[1], redis.call('HMGET', settings, 'shards', 'groups', 'leaving', 'format')
check_format(topic[4])
if ARGV[2] ~= '' and topic[1] ~= ARGV[2] then return false end
local record = redis.call('HGET', jobs, id)
if not record then return {} end
local delayed = redis.call('ZSCORE', bucket, string.sub(record, 1, 12) .. id)
local look = {keyed = keyed, lanes = lanes}
local k = {progress = progress, settings = settings, leaving = topic[3]}
local reply = {record, delayed and 1 or 0}
local concerned, states = group_states(k, names(topic[2]), id, string.sub(record, 1, 12))
if #concerned == 0 then return {} end -- the job is about to end with its groups
for _, group in ipairs(concerned) do
  local p, n = states[group], #reply
  reply[n + 1], reply[n + 2] = group, p and format(p) or ''
  local waits = p and (redis.call('ZSCORE', bucket, member(p.sequence, group, id)) or is_aside(look, group, id))
  reply[n + 3] = waits and 1 or 0
end
return reply
