-- names(list): returns {'a', 'b'} for 'a,b', {} for nil or false
local function names(list)
  local out = {}
  for name in string.gmatch(list or '', '[^,]+') do out[#out + 1] = name end
  return out
end

-- has(list, name): returns whether the name is in the list
local function has(list, name)
  for _, one in ipairs(list) do if one == name then return true end end
  return false
end

-- take_out(list, name): removes the name from the list.
-- returns whether it was there
local function take_out(list, name)
  for i, one in ipairs(list) do
    if one == name then return table.remove(list, i) ~= nil end
  end
  return false
end

-- served(list, group, generation, claimed): whether the group of a claim still exists. generation: the group's, by the
-- settings, nil = it was never removed; claimed: the claim's generation.
-- returns the topic's groups; nil if `group` was removed, or was removed and made again since
local function served(list, group, generation, claimed)
  local groups = names(list)
  return has(groups, group) and (generation or '0') == claimed and groups or nil
end

-- refused(now, args, width, first): refuses all claims in args[first..], `width` values each, as their group is gone.
-- first: 6 if it is nil.
-- returns the script's reply: {now, 1, 2, ...}
local function refused(now, args, width, first)
  local reply = {now}
  for i = 1, (#args - (first or 6) + 1) / width do reply[i + 1] = i end
  return reply
end

-- waiting_in(counts): returns how many of the bucket's members are groups' own deliveries, including leaving groups
local function waiting_in(counts)
  local all, n = redis.call('HGETALL', counts), 0
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 8) == 'waiting:' then n = n + tonumber(all[i + 1]) end
  end
  return n
end
