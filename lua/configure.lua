-- configure: what the scripts of one shard need to know of its topic; makes new groups. Run again, it changes nothing.
-- KEYS[1] settings  HASH
-- KEYS[2] jobs      HASH
-- KEYS[3] bucket    ZSET
-- KEYS[4] ready     STREAM
-- KEYS[5] counts    HASH
-- KEYS[6] wake      STREAM
-- KEYS[7..] ready:GROUP  STREAM  in the order of ARGV[3]
-- ARGV[1] version: an older one than the shard has is ignored
-- ARGV[2] shards
-- ARGV[3] groups, 'a,b': those that the shard has besides stay until leave_group has emptied them
-- ARGV[4..] field, value, ... ('' takes the field away)
-- returns 1, or 0 = refused: the number of shards can't change while the shard holds jobs
-- include: ring, settle
local settings, jobs, bucket, ready, counts, wake = unpack(KEYS)
local known = redis.call('HMGET', settings, 'version', 'shards', 'groups')
if tonumber(known[1] or 0) > tonumber(ARGV[1]) then return 1 end
local live = redis.call('HLEN', jobs)
if known[2] and known[2] ~= ARGV[2] and live > 0 then return 0 end

local had, all, waiting = {}, names(known[3]), 0
for _, group in ipairs(all) do
  had[group] = true
  waiting = waiting + tonumber(redis.call('HGET', counts, 'waiting:' .. group) or 0)
end
local delayed = redis.call('ZCARD', bucket) - waiting
local detached = tonumber(redis.call('HGET', counts, 'detached') or 0)

local function make(stream, group)
  local made = redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
  -- tostring: what fakeredis puts into err is no Lua string
  if type(made) == 'table' and made.err and not string.find(tostring(made.err), 'BUSYGROUP', 1, true) then
    return error(tostring(made.err))
  end
end
for i, group in ipairs(names(ARGV[3])) do
  make(ready, group)
  make(KEYS[6 + i], group)
  if not had[group] then
    all[#all + 1] = group
    -- A new group gets every job that no group has to itself; what was enqueued before and left does not concern it.
    local enqueued = tonumber(redis.call('HGET', counts, 'enqueued') or 0)
    redis.call('HSET', counts, 'base:' .. group, enqueued - (live - detached),
      'ready:' .. group, live - detached - delayed)
  end
end

if #all > 1 then redis.call('HSET', settings, 'shared', 1) end -- once and for good: entries were kept for others
redis.call('HSET', settings, 'version', ARGV[1], 'shards', ARGV[2], 'groups', table.concat(all, ','))
for i = 4, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', settings, ARGV[i])
  else redis.call('HSET', settings, ARGV[i], ARGV[i + 1]) end
end
ring(wake, 0)
return 1
