-- will_be_admitted(k, group, id, sequence): returns whether the job waits for its key, and will be admitted with this sequence
local function will_be_admitted(k, group, id, sequence)
  local ticket = waits_for_key(k, group, id)
  if not ticket then return false end
  local _, _, order = parse_ticket(ticket)
  return order == sequence
end

-- entries_of(k, groups, ids, records): finds in which streams these jobs should be, for these groups. k.leaving: settings
-- field.
-- returns {id, group, entry, ...}: the jobs that are ready or running for a group by an entry of ready:GROUP, or of the
-- shared stream if group is '': the entry's id if one runs, else its value
local function entries_of(k, groups, ids, records)
  local found, states = {}, states_of(k, groups, ids)
  local function should_be(id, group, entry)
    for _, text in ipairs({id, group, entry}) do found[#found + 1] = text end
  end
  for i, id in ipairs(ids) do
    local sequence, untouched, alone = string.sub(records[i], 1, 12), 0, false
    for j, group in ipairs(groups) do
      local p = parse(states[(i - 1) * #groups + j])
      if not p then
        untouched = untouched + 1
      else
        alone = alone or p.main == '-'
        if p.state == 'r' then
          if p.entry == '' then should_be(id, '', p.main) else should_be(id, group, p.entry) end
        elseif p.state == 'w' and not redis.call('ZSCORE', k.bucket, member(p.sequence, group, id))
            and not will_be_admitted(k, group, id, p.sequence) then
          should_be(id, group, member(p.sequence, group, id))
        end
      end
    end
    -- A group that has not started the job waits for its first delivery, unless the job is detached.
    if untouched > 0 and not alone and not redis.call('ZSCORE', k.bucket, sequence .. id)
      and not (untouched == #groups and is_only_for_leaving(k, id, sequence)) then
      should_be(id, '', sequence .. id)
    end
  end
  return found
end
