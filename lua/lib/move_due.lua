-- open_jobs(k): returns how many jobs are ready or claimed, in all groups
-- k = {groups=}
local function open_jobs(k)
  local open = 0
  for _, group in ipairs(k.groups) do
    local both = redis.call('HMGET', k.counts, 'ready:' .. group, 'running:' .. group)
    open = open + (both[1] or 0) + (both[2] or 0)
  end
  return open
end

-- due_in(bucket, limit, now): reads the first members of the bucket that are due. Most often it is one: then the next due
-- time is read with it.
-- returns them, and the due time of the member that follows, -1 = there is none; nil = it was not read
local function due_in(bucket, limit, now)
  local one, first, other, second = unpack(redis.call('ZRANGE', bucket, 0, 1, 'WITHSCORES'))
  if limit <= 0 or not one or tonumber(first) > now then return {}, tonumber(first or -1) end
  if not other or tonumber(second) > now then return {one}, tonumber(second or -1) end
  return redis.call('ZRANGEBYSCORE', bucket, '-inf', string.format('%.0f', now), 'LIMIT', 0, limit)
end

-- deal_out(k, members, streams): adds jobs that are due to the ready streams, and counts them. k.mine, if set: a group
-- whose ready jobs the caller counts.
-- k = {groups=, mine=}
-- returns how many went to the shared stream, and {group = how many} to the groups' own
local function deal_out(k, members, streams)
  local first, own = 0, {}
  for _, member in ipairs(members) do
    if string.byte(member, 13) ~= 31 then
      redis.call('XADD', k.ready, '*', 'j', member)
      first = first + 1
    else
      local group = string.match(member, '^[^\31]*\31([^\31]*)')
      if streams[group] then
        redis.call('XADD', streams[group], '*', 'j', member)
        own[group] = (own[group] or 0) + 1
      else -- the group is leaving
        redis.call('HINCRBY', k.counts, 'waiting:' .. group, -1)
      end
    end
  end
  for _, group in ipairs(k.groups) do
    local retries = own[group] or 0
    if first + retries > 0 and group ~= k.mine then
      redis.call('HINCRBY', k.counts, 'ready:' .. group, first + retries)
    end
    if retries > 0 then redis.call('HINCRBY', k.counts, 'waiting:' .. group, -retries) end
  end
  return first, own
end

-- move_due(k, streams, limit, known, permitted): bucket -> ready streams, at most `limit` due jobs, oldest first; a group's
-- retries -> streams[group]. known: the topic's groups, as the caller knows them; permitted: '1' = `permit` has granted
-- the limit. k.names: the topic's groups as text; k.waits: from requeue.lua.
-- k = {groups=, names=, waits=, now=, mine=}
-- returns the reply of move; and how many it added to the shared stream, and {group = how many} to the groups' own
local function move_due(k, streams, limit, known, permitted)
  if k.names ~= known then return {-1, k.now, -1, 0, k.names or ''}, 0, {} end
  if k.waits == 'paused' then return {0, k.now, -1, open_jobs(k)}, 0, {} end
  if k.waits and permitted == '0' then return {-2, k.now, -1, open_jobs(k)}, 0, {} end
  local due, next_due = due_in(k.bucket, limit, k.now)
  if #due == 0 then return {0, k.now, next_due, open_jobs(k)}, 0, {} end
  -- Removal first: a Redis at its memory limit refuses a script whose first write adds data, not one that frees memory.
  redis.call('ZREMRANGEBYRANK', k.bucket, 0, #due - 1)
  local first, own = deal_out(k, due, streams)
  redis.call('HINCRBY', k.counts, 'moved', #due)
  redis.call('HSET', k.settings, 'moved_at', string.format('%.0f', k.now))
  return {#due, k.now, next_due or head_ms(k.bucket) or -1, #due}, first, own
end
