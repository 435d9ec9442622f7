-- move_and_claim: what move does, and then claim, for one consumer of one group: bucket -> ready -> running. The caller is
-- the mover, and a worker in its process is idle: so its first jobs need neither a second call nor a blocked read. Other
-- consumers, whom Redis serves when the script has ended, get the rest of what it has moved.
-- keys: ready, jobs, progress, counts, settings, wake, history, bucket, taken, taken_until, lanes, fronts, keyed,
--   crowds
-- keys of the group: own
-- keys of each group: own
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] consumer
-- ARGV[4] count: how many to claim at most, no more than it moves; the caller starts all of them at once
-- ARGV[5] default TTR in ms, if the topic sets none
-- ARGV[6] history cap
-- ARGV[7] limit: how many to move at most
-- ARGV[8] groups, 'a,b'
-- ARGV[9] '1' = `permit` has granted the limit
-- returns {reply of move, reply of claim}; unread is not counted, it is 0. The latter is {-1} if there is no such group,
-- or Redis has lost it, and if nothing was moved.
-- flags: allow-oom
-- include: stored_format, clock, history, progress, ring, lanes, move_due, requeue, settle, return_unclaimed,
--   start_attempt, stream_groups, read, taken, claim_entries
local k = shard(KEYS)
k.now, k.group, k.consumer, k.cap = now_ms(ARGV[1]), ARGV[2], ARGV[3], ARGV[6]
check_format(read_topic(k, ARGV[5]))
local streams = {}
for i, group in ipairs(k.groups) do
  streams[group] = KEYS[FIXED + i]
  if group == k.group then k.mine = group end
end
local moved, first, again = move_due(k, streams, tonumber(ARGV[7]), ARGV[8], ARGV[9])
local came = first + (again[k.group] or 0)
if not k.mine or came == 0 then return {moved, {-1}} end

k.count = at_most(k, math.min(came, tonumber(ARGV[4])))
k.at_once = k.count
-- What was moved must be counted even if another client has destroyed the group, which ends the read with an error.
local there, entries, own_entries = pcall(both_streams, budget_of(jobs, k.largest, k.count), k, k.group, k.consumer,
  {[own] = {}, [ready] = {}}, k.count, again[k.group] and 1 or 2)
if not there then
  redis.call('HINCRBY', counts, 'ready:' .. k.group, came)
  return {moved, {-1}}
end
local claims, ids, records, less = claim_entries(k, entries, own_entries)
if came ~= less then redis.call('HINCRBY', counts, 'ready:' .. k.group, came - less) end
return {moved, {1, k.now, k.ttr, 0, claims, ids, records, #k.expired, k.generation, k.refused, 0}}
