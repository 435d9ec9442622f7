-- names(list): 'a,b' -> {'a', 'b'}. has(list, name). take_out(list, name): returns whether it was there.
local function names(list)
  local out = {}
  for name in string.gmatch(list or '', '[^,]+') do out[#out + 1] = name end
  return out
end
local function has(list, name)
  for _, one in ipairs(list) do if one == name then return true end end
  return false
end
local function take_out(list, name)
  for i, one in ipairs(list) do
    if one == name then return table.remove(list, i) ~= nil end
  end
  return false
end
-- served(list, group, generation, claimed): the topic's groups, or nil: `group` was removed, or was made again since a
-- claim that carries the generation `claimed`. generation: what the settings say of the group, nil = never removed.
local function served(list, group, generation, claimed)
  local groups = names(list)
  return has(groups, group) and (generation or '0') == claimed and groups or nil
end
-- waiting_in(counts): how many of the bucket's members are groups' own, of groups that are leaving, too.
local function waiting_in(counts)
  local all, n = redis.call('HGETALL', counts), 0
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 8) == 'waiting:' then n = n + tonumber(all[i + 1]) end
  end
  return n
end
-- forget(k, groups, id, main): the job leaves the pool with everything that is kept of it.
-- k = {jobs=, progress=, counts=, ready=}
local function forget(k, groups, id, main)
  redis.call('HDEL', k.jobs, id)
  for _, group in ipairs(groups) do
    local field = group .. '\31' .. id
    local value = redis.call('HGET', k.progress, field)
    if value then
      if string.sub(value, 1, 1) == 'x' then redis.call('HINCRBY', k.counts, 'through:' .. group, -1) end
      redis.call('HDEL', k.progress, field)
    end
  end
  if main == '-' then redis.call('HINCRBY', k.counts, 'detached', -1)
  elseif main ~= '' then redis.call('XDEL', k.ready, main) end
end
-- settle(k, groups, group, id, main): `group` is through with the job; the last group takes the record with it. A
-- detached job concerns those groups alone that have progress with it.
local function settle(k, groups, group, id, main)
  local alone = main == '-'
  for _, other in ipairs(groups) do
    if other ~= group then
      local value = redis.call('HGET', k.progress, other .. '\31' .. id)
      if value and string.sub(value, 1, 1) ~= 'x' or not value and not alone then
        if alone then
          redis.call('HDEL', k.progress, group .. '\31' .. id)
        else
          redis.call('HSET', k.progress, group .. '\31' .. id, 'x|0|0|0|' .. main .. '|||||')
          redis.call('HINCRBY', k.counts, 'through:' .. group, 1)
        end
        return false
      end
    end
  end
  forget(k, groups, id, main)
  return true
end
-- detach(k, groups, main): no other group needs the shared entry: remove it. Returns what `main` is from now on.
local function detach(k, groups, main)
  if #groups > 1 or main == '-' then return main end
  redis.call('XDEL', k.ready, main)
  redis.call('HINCRBY', k.counts, 'detached', 1)
  return '-'
end
