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

-- states_of(s, ids): reads the progress of every group of the topic with the jobs.
-- returns the values, those of the first job for each group, then those of the next; and the fields of these values
local function states_of(s, ids)
  local fields, n = {}, 0
  for _, id in ipairs(ids) do
    local suffix = '\31' .. id
    for _, group in ipairs(s.groups) do
      n = n + 1
      fields[n] = group .. suffix
    end
  end
  return values_of(s.progress, fields), fields
end

-- erase(s, jobs, ended): removes the jobs at the indexes `ended`, with everything stored of them. jobs = {ids=, mains=, states=,
-- fields=}: mains: `main` of each job's progress, '' = not known; states, fields: of all the jobs, as states_of returns them.
-- s.on_removed, if given, is called with the ids.
local function erase(s, jobs, ended)
  local ids, fields, entries, detached, n = {}, {}, {}, 0, 0
  for e, i in ipairs(ended) do
    local main, before = jobs.mains[i], (i - 1) * #s.groups
    ids[e] = jobs.ids[i]
    if main == '-' then detached = detached + 1 elseif main ~= '' then entries[#entries + 1] = main end
    for j = 1, #s.groups do
      if jobs.states[before + j] then
        n = n + 1
        fields[n] = jobs.fields[before + j]
      end
    end
  end
  if #ids == 0 then return end
  redis.call('HDEL', s.jobs, unpack(ids))
  if s.on_removed then s.on_removed(ids) end
  for i = 1, n, FIELDS_AT_ONCE do
    redis.call('HDEL', s.progress, unpack(fields, i, math.min(i + FIELDS_AT_ONCE - 1, n)))
  end
  if detached > 0 then redis.call('HINCRBY', s.counts, 'detached', -detached) end
  if #entries > 0 then redis.call('XDEL', s.ready, unpack(entries)) end
end

-- forget(s, id, main): removes one job with everything stored of it.
local function forget(s, id, main)
  local states, fields = states_of(s, {id})
  erase(s, {ids = {id}, mains = {main}, states = states, fields = fields}, {1})
end

-- end_in_group(s, group, ids, mains): notes that `group` has done the jobs; the last group removes the job. A detached job
-- concerns only the groups that have progress with it. s.mark: see fail_in_group.
local function end_in_group(s, group, ids, mains)
  if #ids == 0 then return end
  local states, fields = states_of(s, ids)
  local ended, marks = {}, {}
  for i, main in ipairs(mains) do
    local open, alone, own, before = false, main == '-', '', (i - 1) * #s.groups
    for j, other in ipairs(s.groups) do
      local value = states[before + j]
      if other == group then own = fields[before + j]
      elseif value and string.byte(value) ~= 120 or not value and not alone then open = true end
    end
    if open then
      marks[#marks + 1] = own
      marks[#marks + 1] = 'x|0|0|0|' .. main .. '|||||' .. (s.mark or '')
    else
      ended[#ended + 1] = i
    end
  end
  if #marks > 0 then redis.call('HSET', s.progress, unpack(marks)) end
  erase(s, {ids = ids, mains = mains, states = states, fields = fields}, ended)
end

-- fail_in_group(s, how, ids, mains): s.group has ended the jobs, and has not done them. how: what is noted of that
-- (progress.lua); others may begin to wait for the jobs later.
local function fail_in_group(s, how, ids, mains)
  s.mark = how
  end_in_group(s, s.group, ids, mains)
  s.mark = nil
end

-- detach(s, main): removes the shared entry unless another group needs it.
-- returns the new value of `main`
local function detach(s, main)
  if #s.groups > 1 or main == '-' then return main end
  redis.call('XDEL', s.ready, main)
  redis.call('HINCRBY', s.counts, 'detached', 1)
  return '-'
end
