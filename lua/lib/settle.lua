local FIELDS_AT_ONCE = 4000
-- values_of(key, fields): HMGET of any number of fields; Lua can pass only some thousands at once.
-- returns their values
local function values_of(key, fields)
  if #fields <= FIELDS_AT_ONCE then return #fields > 0 and redis.call('HMGET', key, unpack(fields)) or {} end
  local out = {}
  for i = 1, #fields, FIELDS_AT_ONCE do
    local part = redis.call('HMGET', key, unpack(fields, i, math.min(i + FIELDS_AT_ONCE - 1, #fields)))
    for j = 1, #part do out[i + j - 1] = part[j] end
  end
  return out
end

-- states_of(k, groups, ids): reads every group's progress with the jobs.
-- returns the values, those of the first job for each group, then those of the next; and the fields of these values
local function states_of(k, groups, ids)
  local fields, n = {}, 0
  for _, id in ipairs(ids) do
    local suffix = '\31' .. id
    for _, group in ipairs(groups) do
      n = n + 1
      fields[n] = group .. suffix
    end
  end
  return values_of(k.progress, fields), fields
end

-- erase(k, groups, ids, mains, ended, states, fields): removes the jobs at the indexes `ended`, with everything stored
-- of them. mains: `main` of each job's progress, '' = not known; states, fields: of all the jobs, as states_of returns
-- them. k.gone, if given, is called with the ids (leaving_pool).
local function erase(k, groups, ids, mains, ended, states, fields)
  local gone, there, entries, through, detached, n = {}, {}, {}, {}, 0, 0
  for e, i in ipairs(ended) do
    gone[e] = ids[i]
    if mains[i] == '-' then detached = detached + 1 elseif mains[i] ~= '' then entries[#entries + 1] = mains[i] end
    local before = (i - 1) * #groups
    for j = 1, #groups do
      local value = states[before + j]
      if value then
        n = n + 1
        there[n] = fields[before + j]
        if string.byte(value) == 120 then through[j] = (through[j] or 0) + 1 end -- x
      end
    end
  end
  if #gone == 0 then return end
  redis.call('HDEL', k.jobs, unpack(gone))
  if k.gone then k.gone(gone) end
  for i = 1, n, FIELDS_AT_ONCE do
    redis.call('HDEL', k.progress, unpack(there, i, math.min(i + FIELDS_AT_ONCE - 1, n)))
  end
  for j, number in pairs(through) do redis.call('HINCRBY', k.counts, 'through:' .. groups[j], -number) end
  if detached > 0 then redis.call('HINCRBY', k.counts, 'detached', -detached) end
  if #entries > 0 then redis.call('XDEL', k.ready, unpack(entries)) end
end

-- forget(k, groups, id, main): removes one job with everything stored of it.
local function forget(k, groups, id, main)
  erase(k, groups, {id}, {main}, {1}, states_of(k, groups, {id}))
end

-- settle(k, groups, group, ids, mains): notes that `group` has ended the jobs; the last group removes the job. A
-- detached job concerns only the groups that have progress with it.
local function settle(k, groups, group, ids, mains)
  if #ids == 0 then return end
  local states, fields = states_of(k, groups, ids)
  local ended, marks, detached = {}, {}, {}
  for i, main in ipairs(mains) do
    local open, alone, own, before = false, main == '-', '', (i - 1) * #groups
    for j, other in ipairs(groups) do
      local value = states[before + j]
      if other == group then own = fields[before + j]
      elseif value and string.byte(value) ~= 120 or not value and not alone then open = true end
    end
    if not open then
      ended[#ended + 1] = i
    elseif alone then
      detached[#detached + 1] = own
    else
      marks[#marks + 1] = own
      marks[#marks + 1] = 'x|0|0|0|' .. main .. '|||||'
    end
  end
  if #detached > 0 then redis.call('HDEL', k.progress, unpack(detached)) end
  if #marks > 0 then
    redis.call('HSET', k.progress, unpack(marks))
    redis.call('HINCRBY', k.counts, 'through:' .. group, #marks / 2)
  end
  erase(k, groups, ids, mains, ended, states, fields)
end

-- detach(k, groups, main): removes the shared entry unless another group needs it.
-- returns the new value of `main`
local function detach(k, groups, main)
  if #groups > 1 or main == '-' then return main end
  redis.call('XDEL', k.ready, main)
  redis.call('HINCRBY', k.counts, 'detached', 1)
  return '-'
end
