-- leave_group: one step of removing a group from a shard: it is no longer asked for, and what only it held open ends.
-- KEYS[1] settings     HASH
-- KEYS[2] jobs         HASH
-- KEYS[3] bucket       ZSET
-- KEYS[4] ready        STREAM
-- KEYS[5] progress     HASH
-- KEYS[6] counts       HASH
-- KEYS[7] ready:GROUP  STREAM
-- KEYS[8] dead:GROUP   ZSET
-- ARGV[1] group
-- ARGV[2] cursor of the walk over jobs; '0' begins
-- ARGV[3] limit
-- returns the next cursor; '0' when the group is gone
-- include: progress, settle
local settings, jobs, bucket, ready, progress, counts, own, dead = unpack(KEYS)
local group, k = ARGV[1], {jobs = jobs, progress = progress, counts = counts, ready = ready}

local rest = {}
for _, name in ipairs(names(redis.call('HGET', settings, 'groups'))) do
  if name ~= group then rest[#rest + 1] = name end
end
redis.call('HSET', settings, 'groups', table.concat(rest, ','))

local page = redis.call('HSCAN', jobs, ARGV[2], 'COUNT', ARGV[3])
for i = 1, #page[2], 2 do
  local id = page[2][i]
  local p = parse(redis.call('HGET', progress, field_of(group, id)))
  local main = p and p.main or ''
  if p then
    redis.call('HDEL', progress, field_of(group, id))
    if p.state == 'w' then redis.call('ZREM', bucket, member(p.sequence, group, id)) end
  end
  local open, alone = false, main == '-' -- detached: groups without progress are not concerned
  for _, other in ipairs(rest) do
    local value = redis.call('HGET', progress, field_of(other, id))
    if value and main == '' then main = parse(value).main end
    open = open or value and string.sub(value, 1, 1) ~= 'x' or not value and not alone
  end
  if not open then
    redis.call('ZREM', bucket, string.sub(page[2][i + 1], 1, 12) .. id)
    forget(k, rest, id, main)
  end
end

if page[1] == '0' then
  redis.call('DEL', own, dead)
  redis.pcall('XGROUP', 'DESTROY', ready, group)
  for _, name in ipairs({'base', 'done', 'dead', 'cancelled', 'expired', 'ready', 'running', 'waiting', 'through',
    'retried', 'snoozed', 'reclaimed', 'purged', 'archived', 'lost'}) do
    redis.call('HDEL', counts, name .. ':' .. group)
  end
end
return page[1]
