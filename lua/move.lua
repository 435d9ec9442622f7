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
-- that rings); open = ready or claimed jobs of all groups.
-- include: clock, ring, settle, stored_format
local bucket, ready, counts, settings = unpack(KEYS)
local now, limit = now_ms(ARGV[1]), tonumber(ARGV[2])

local topic = redis.call('HMGET', settings, 'groups', 'paused', 'rate', 'format')
check_format(topic[4])
local groups = names(topic[1])
if topic[1] ~= ARGV[3] then return {-1, now, -1, 0, topic[1] or ''} end
local function open_claims()
  local open = 0
  for _, group in ipairs(groups) do
    local both = redis.call('HMGET', counts, 'ready:' .. group, 'running:' .. group)
    open = open + (both[1] or 0) + (both[2] or 0)
  end
  return open
end
if topic[2] == '1' then return {0, now, -1, open_claims()} end

if tonumber(topic[3] or 0) > 0 and ARGV[4] == '0' then return {-2, now, -1, open_claims()} end

local due = {}
if limit > 0 then
  due = redis.call('ZRANGEBYSCORE', bucket, '-inf', string.format('%.0f', now), 'LIMIT', 0, limit)
end
if #due > 0 then
  -- Removal first: a Redis at its memory limit refuses a script whose first write adds data, not one that frees memory.
  redis.call('ZREMRANGEBYRANK', bucket, 0, #due - 1)
  local stream, own, first = {}, {}, 0
  for i, group in ipairs(groups) do stream[group] = KEYS[4 + i] end
  for _, member in ipairs(due) do
    if string.byte(member, 13) ~= 31 then
      redis.call('XADD', ready, '*', 'j', member)
      first = first + 1
    else
      local group = string.match(member, '^[^\31]*\31([^\31]*)')
      if stream[group] then
        redis.call('XADD', stream[group], '*', 'j', member)
        own[group] = (own[group] or 0) + 1
      else -- the group is leaving
        redis.call('HINCRBY', counts, 'waiting:' .. group, -1)
      end
    end
  end
  for _, group in ipairs(groups) do
    local retries = own[group] or 0
    if first + retries > 0 then redis.call('HINCRBY', counts, 'ready:' .. group, first + retries) end
    if retries > 0 then redis.call('HINCRBY', counts, 'waiting:' .. group, -retries) end
  end
  redis.call('HINCRBY', counts, 'moved', #due)
  redis.call('HSET', settings, 'moved_at', string.format('%.0f', now))
end

return {#due, now, head_ms(bucket) or -1, open_claims()}
