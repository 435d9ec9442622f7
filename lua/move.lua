-- move: bucket -> ready stream, at most `limit` due jobs, oldest first; a group's retries -> that group's own stream.
-- keys: bucket, ready, counts, settings
-- keys of each group: own
-- ARGV[1] now_ms or ''
-- ARGV[2] limit
-- ARGV[3] groups, 'a,b'
-- ARGV[4] '1' = `permit` has granted the limit
-- returns {moved, now_ms, next_due_ms, open, ...}; moved -1 = the shard has other groups, which follow as 'a,b'; -2 =
-- the topic has a rate, and the caller has no permit; next_due_ms -1 = no job to wait for (empty or paused; a change of
-- that wakes the mover); open = ready or claimed jobs of all groups, or those that were moved, if any.
-- flags: allow-oom
-- include: clock, groups, notify_mover, open_jobs, requeue, stored_format

-- due_in(waiting, limit, now): reads the first members of the bucket that are due. Most often it is one: then the next due
-- time is read with it.
-- returns them, and the due time of the member that follows, -1 = there is none; nil = it was not read
local function due_in(waiting, limit, now)
  local one, first, other, second = unpack(redis.call('ZRANGE', waiting, 0, 1, 'WITHSCORES'))
  if limit <= 0 or not one or tonumber(first) > now then return {}, tonumber(first or -1) end
  if not other or tonumber(second) > now then return {one}, tonumber(second or -1) end
  return redis.call('ZRANGEBYSCORE', waiting, '-inf', string.format('%.0f', now), 'LIMIT', 0, limit)
end

-- deal_out(s, members, streams): adds jobs that are due to the ready streams, and counts them. A group's retries go to
-- streams[group].
local function deal_out(s, members, streams)
  local first, own = 0, {}
  for _, member in ipairs(members) do
    if string.byte(member, 13) ~= 31 then
      redis.call('XADD', s.ready, '*', 'j', member)
      first = first + 1
    else
      local group = string.match(member, '^[^\31]*\31([^\31]*)')
      if streams[group] then
        redis.call('XADD', streams[group], '*', 'j', member)
        own[group] = (own[group] or 0) + 1
      else -- the group is leaving
        redis.call('HINCRBY', s.counts, 'waiting:' .. group, -1)
      end
    end
  end
  for _, group in ipairs(s.groups) do
    local retries = own[group] or 0
    if first + retries > 0 then redis.call('HINCRBY', s.counts, 'ready:' .. group, first + retries) end
    if retries > 0 then redis.call('HINCRBY', s.counts, 'waiting:' .. group, -retries) end
  end
end

local topic = redis.call('HMGET', settings, 'groups', 'paused', 'rate', 'format')
check_format(topic[4])
local now, known, wait = now_ms(ARGV[1]), topic[1], waits(topic[2], topic[3])
local s = shard(KEYS)
s.groups = names(known)
if known ~= ARGV[3] then return {-1, now, -1, 0, known or ''} end
if wait == 'paused' then return {0, now, -1, open_jobs(s)} end
if wait and ARGV[4] == '0' then return {-2, now, -1, open_jobs(s)} end
local due, next_due = due_in(bucket, tonumber(ARGV[2]), now)
if #due == 0 then return {0, now, next_due, open_jobs(s)} end
-- Removal first: a Redis at its memory limit refuses a script whose first write adds data, not one that frees memory.
redis.call('ZREMRANGEBYRANK', bucket, 0, #due - 1)
local streams = {}
for i, group in ipairs(s.groups) do streams[group] = KEYS[FIXED + i] end
deal_out(s, due, streams)
redis.call('HINCRBY', counts, 'moved', #due)
redis.call('HSET', settings, 'moved_at', string.format('%.0f', now))
return {#due, now, next_due or head_ms(bucket) or -1, #due}
