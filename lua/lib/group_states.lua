-- include: end_in_group, leaving_groups, progress

-- states_in(s, job, values, before): the progress of one job in each of the topic's groups that it concerns. A group
-- without progress has not started the job. A detached job concerns only the groups that have progress with it: none of
-- them, if all of those are leaving. values: as states_of returns them, those of this job after the index `before`.
-- returns the groups concerned, {[group] = progress}, and whether an attempt is running
local function states_in(s, job, values, before)
  local states, is_running, alone = {}, false, {}
  for i, group in ipairs(s.groups) do
    local p = parse(values[before + i])
    if p then
      states[group] = p
      is_running = is_running or p.state == 'r'
      if p.main == '-' then alone[#alone + 1] = group end
    end
  end
  if next(states) == nil and is_only_for_leaving(s, job) then return {}, states, false end
  return #alone > 0 and alone or s.groups, states, is_running
end

-- group_states(s, job): reads the progress of one job in each group that it concerns.
-- returns what states_in returns
local function group_states(s, job)
  return states_in(s, job, states_of(s, {job.id}), 0)
end
