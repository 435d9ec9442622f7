-- include: end_in_group, key_limit, key_tickets, leaving_groups, progress, ranked

-- will_be_admitted(s, job, group): returns whether the job waits for its key, and will be admitted with the sequence of the
-- group's progress
local function will_be_admitted(s, job, group)
  local ticket = waits_for_key(s, group, job.id)
  if not ticket then return false end
  local _, _, sequence = parse_ticket(ticket)
  return sequence == job.states[group].sequence
end

-- entries_of(s, ids, records): finds in which streams these jobs should be, for the topic's groups.
-- returns {id, group, entry, ...}: the jobs that are ready or running for a group by an entry of ready:GROUP, or of the
-- shared stream if group is '': the entry's id if one runs, else its value
local function entries_of(s, ids, records)
  local found, values, groups = {}, states_of(s, ids), s.groups
  local function should_be(id, group, entry)
    for _, text in ipairs({id, group, entry}) do found[#found + 1] = text end
  end
  for i, id in ipairs(ids) do
    local sequence, untouched, alone, states = string.sub(records[i], 1, 12), 0, false, {}
    for j, group in ipairs(groups) do
      local p = parse(values[(i - 1) * #groups + j])
      if not p then
        untouched = untouched + 1
      else
        alone, states[group] = alone or p.main == '-', p
        if p.state == 'r' then
          if p.entry == '' then should_be(id, '', p.main) else should_be(id, group, p.entry) end
        elseif p.state == 'w' and not redis.call('ZSCORE', s.bucket, member(p.sequence, group, id))
            and not will_be_admitted(s, {id = id, states = states}, group)
            and not is_ranked(s, group, member(p.sequence, group, id)) then
          should_be(id, group, member(p.sequence, group, id))
        end
      end
    end
    -- A group that has not started the job waits for its first delivery, unless the job is detached.
    if untouched > 0 and not alone and not redis.call('ZSCORE', s.bucket, sequence .. id)
      and not (untouched == #groups and is_only_for_leaving(s, {id = id, record = records[i]})) then
      should_be(id, '', sequence .. id)
    end
  end
  return found
end
