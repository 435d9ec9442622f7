-- states_in(k, groups, id, sequence, values, before): the progress of one job, whose record has that sequence, in each
-- group that it concerns. A group without progress has not started the job. A detached job concerns only the groups that
-- have progress with it: none of `groups`, if all of those are leaving. values: as states_of returns them, those of this
-- job after the index `before`.
-- returns the groups concerned, {[group] = progress}, and whether an attempt is running
local function states_in(k, groups, id, sequence, values, before)
  local states, running, alone = {}, false, {}
  for i, group in ipairs(groups) do
    local p = parse(values[before + i])
    if p then
      states[group] = p
      running = running or p.state == 'r'
      if p.main == '-' then alone[#alone + 1] = group end
    end
  end
  if next(states) == nil and is_only_for_leaving(k, id, sequence) then return {}, states, false end
  return #alone > 0 and alone or groups, states, running
end

-- group_states(k, groups, id, sequence): reads the progress of one job in each group that it concerns, as states_in
-- takes it.
-- returns what states_in returns
local function group_states(k, groups, id, sequence)
  return states_in(k, groups, id, sequence, states_of(k, groups, {id}), 0)
end
