-- include: end_in_group

-- What the groups that have ended a job have noted of it, which others have yet to end.

-- ended_in(s, id): returns {[group] = what is noted of how it ended, '' = it has done the job (progress.lua)}
local function ended_in(s, id)
  local states, found = states_of(s, {id}), {}
  for i, group in ipairs(s.groups) do
    if states[i] and string.byte(states[i]) == 120 then found[group] = string.match(states[i], '%a*$') end -- x
  end
  return found
end

-- is_done_in_one(s, id): returns whether a group has done the job
local function is_done_in_one(s, id)
  for _, note in pairs(ended_in(s, id)) do if note == '' then return true end end
  return false
end
