-- include: delivery, end_in_group, progress

-- deliveries_in(groups, record, values, before): what is known of a job: the sequence and the nonce of its record, and for
-- each group that has begun '|GROUP:', the state and delivery_of. Whatever becomes of the job changes this, except that
-- it comes due. values: as states_of returns them, those of this job after the index `before`.
-- returns it as text
local function deliveries_in(groups, record, values, before)
  local out = {string.sub(record, 1, 12), (string.match(record, '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)\n'))}
  for i, group in ipairs(groups) do
    local p = parse(values[before + i])
    if p then out[#out + 1] = '|' .. group .. ':' .. p.state .. delivery_of(p) end
  end
  return table.concat(out)
end

-- is_changed(s, job, shown): whether the job is no longer as it was when deliveries_in made `shown`; false if that is nil.
-- returns true or false
local function is_changed(s, job, shown)
  return shown ~= nil and deliveries_in(s.groups, job.record, states_of(s, {job.id}), 0) ~= shown
end
