-- configure_shard: writes the topic's settings that the shard's scripts need. Creates new groups, and starts to remove
-- leaving groups (leave_group completes that). Idempotent.
-- keys: settings, jobs, bucket, ready, counts, wake, taken, key_paused, key_next_start
-- keys of each group: own
-- keys of each leaving group: own, dead
-- ARGV[1] version: ignored if it is older than the shard's
-- ARGV[2] how jobs are spread: the number of shards, '8'; '8<4@VERSION' while jobs may be where they were put among four,
-- VERSION: which this change followed; '8<@VERSION': they no longer are. '0' closes the shard while the number changes
-- and the topic is empty, of taken ids as well unless keys have limits: nothing can be enqueued
-- ARGV[3] groups, 'a,b'
-- ARGV[4] groups that leave, 'c,d'
-- ARGV[5] dumps, 'id,id', for which a shard that is new keeps its rows
-- ARGV[6..] field, value, ... ('' removes the field)
-- returns {status, groups, leaving, version, shards, sharded_by_key, linked, prioritized}: status 1 = done, 0 = refused: the
-- caller does not know how the jobs were spread. Then what the shard has now, its version (if it is newer, nothing changed),
-- and 1 if it has that mark. A dropped shard returns the lowest version that the next topic of that name may have
-- flags: allow-oom
-- include: dumps, groups, layout, notify_mover, ranked, recheck, results, sequence, stored_format, stream_groups
local known = redis.call('HMGET', settings, 'version', 'shards', 'groups', 'leaving', 'format', 'closed_from',
  'results')
check_format(known[5])
local had, leaving = names(known[3]), names(known[4])
local function answer(status, version, shards)
  local marks = redis.call('HMGET', settings, 'sharded_by_key', 'linked', 'prioritized')
  for i = 1, 3 do marks[i] = marks[i] and 1 or 0 end
  return {status, table.concat(had, ','), table.concat(leaving, ','), tonumber(version), shards or '0', unpack(marks)}
end
local dropped = known[1] and not known[2] -- all that drop_shard left, which expires
if dropped and tonumber(known[1]) >= tonumber(ARGV[1]) then return answer(1, known[1] + 1, '0') end
if tonumber(known[1] or 0) > tonumber(ARGV[1]) then return answer(1, known[1], known[2]) end
local live = redis.call('HLEN', jobs)
-- Taken ids stay where they are when the number changes, and so would their jobs: but a key with a limit has one shard.
-- There they are forgotten, or the number could not change for as long as ids are taken.
local is_limited = redis.call('HEXISTS', settings, 'key_limit') == 1
for i = 6, #ARGV, 2 do is_limited = is_limited or (ARGV[i] == 'key_limit' and ARGV[i + 1] ~= '') end
local is_held = live > 0 or (not is_limited and redis.call('EXISTS', taken) == 1)
if known[2] and not may_follow(settings, known[2], ARGV[2], {live = live, is_held = is_held}) then return answer(0, known[1], known[2]) end
if dropped then
  local kept = redis.call('HMGET', settings, 'history_ended', 'dumps')
  redis.call('DEL', settings)
  if kept[1] then redis.call('HSET', settings, 'history_ended', kept[1]) end
  if kept[2] then redis.call('HSET', settings, 'dumps', kept[2]) end
end
if not known[2] then keep_for(settings, names(ARGV[5])) end -- first: a shard that has settings is not new any more

if known[2] then redis.call('HDEL', settings, '') end -- as register_topic does, at the memory limit
local delayed = redis.call('ZCARD', bucket) - waiting_in(counts)
local detached = tonumber(redis.call('HGET', counts, 'detached') or 0)
local wanted, changed = names(ARGV[3]), known[1] ~= ARGV[1]

local function groups_of(stream)
  return redis.call('EXISTS', stream) == 1 and groups_on(stream) or {}
end

local function make(stream, group, there)
  if there[group] then return end
  redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
  changed = true
end

-- The group's own keys are removed at once, and with them every claim. Its progress, and the jobs that only it held
-- open, follow step by step. Until then `waiting` stays counted, because the members are still in the bucket.
local function begin_to_leave(group, own, dead)
  redis.pcall('XGROUP', 'DESTROY', ready, group)
  redis.call('UNLINK', own, dead)
  forget_turns(shard(KEYS), group)
  for _, name in ipairs({'base', 'done', 'dead', 'cancelled', 'expired', 'ready', 'running', 'retried',
    'snoozed', 'reclaimed', 'purged', 'archived', 'lost'}) do
    redis.call('HDEL', counts, name .. ':' .. group)
  end
  redis.call('HDEL', settings, 'generation:' .. group, 'ttr:' .. group, 'recheck:' .. group, 'turn:' .. group)
  redis.call('HSET', settings, 'left_at:' .. group, numbers_now(counts))
  leaving[#leaving + 1] = group
end
for i, group in ipairs(names(ARGV[4])) do
  if take_out(had, group) then
    local n = FIXED - 1 + #wanted + 2 * i
    begin_to_leave(group, KEYS[n], KEYS[n + 1])
  end
end

local reading = groups_of(ready)
for i, group in ipairs(wanted) do
  if not has(leaving, group) then
    make(ready, group, reading)
    make(KEYS[FIXED + i], group, groups_of(KEYS[FIXED + i]))
    if not has(had, group) then
      had[#had + 1] = group
      -- A new group gets every job that is not detached; jobs that were enqueued before and have ended are not counted.
      local enqueued = tonumber(redis.call('HGET', counts, 'enqueued') or 0)
      redis.call('HSET', counts, 'base:' .. group, enqueued - (live - detached),
        'ready:' .. group, live - detached - delayed)
      -- A group that is created again under the same name is a new one: it must not accept claims from before.
      redis.call('HSET', settings, 'generation:' .. group, redis.call('HINCRBY', settings, 'generation', 1))
    end
  end
end

table.sort(had)
if #had + #leaving > 1 then redis.call('HSET', settings, 'shared', 1) end -- and stays so: entries were kept for other groups
local shards, former = layout_in(ARGV[2])
local spread = former == ',,' and string.format('%d', shards) or ARGV[2]
redis.call('HSET', settings, 'version', ARGV[1], 'shards', spread, 'groups', table.concat(had, ','))
-- A shard that was closed remembers how many there were. If it opens among as many, the change was refused.
if shards == 0 and known[2] and known[2] ~= '0' then
  redis.call('HSET', settings, 'closed_from', (layout_in(known[2])))
elseif shards > 0 and known[6] then
  if tonumber(known[6]) ~= shards then redis.call('UNLINK', key_paused, key_next_start) end -- its keys may be at home elsewhere
  redis.call('HDEL', settings, 'closed_from')
end
if #leaving > 0 then redis.call('HSET', settings, 'leaving', table.concat(leaving, ',')) end
local function ttr_of(group)
  local ttr = redis.call('HMGET', settings, 'ttr:' .. group, 'ttr')
  return tonumber(ttr[1] or ttr[2] or 0)
end
local ttrs, raised, key_limit = {}, {}, redis.call('HGET', settings, 'key_limit')
for i, group in ipairs(had) do ttrs[i] = ttr_of(group) end
for i = 6, #ARGV, 2 do
  local value = ARGV[i] == 'results' and with_former(known[7], ARGV[i + 1]) or ARGV[i + 1]
  if value ~= '' then redis.call('HSET', settings, ARGV[i], value)
  -- A registry that was lost does not know of the limit, but jobs may wait for their keys.
  elseif ARGV[i] == 'key_limit' and key_limit then redis.call('HSET', settings, 'key_limit', '0')
  else redis.call('HDEL', settings, ARGV[i]) end
end
for i, group in ipairs(had) do if ttrs[i] > 0 and ttr_of(group) > ttrs[i] then raised[#raised + 1] = group end end
-- Where there was a limit before, jobs may wait for their keys.
if key_limit and redis.call('HGET', settings, 'key_limit') ~= key_limit then redis.call('HSET', settings, 'limit_applied_to', '') end
recheck_all(settings, raised)
if changed then notify_mover(wake, 0) end
return answer(1, ARGV[1], spread)
