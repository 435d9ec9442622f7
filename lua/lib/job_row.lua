-- job_row(k, groups, id, record, values, before): what there is to know of a job. values: as states_of returns them, those
-- of this job after the index `before`.
-- returns {record, delayed, group, progress, waits, ...}: delayed 1 = its first delivery is in the bucket; progress '' =
-- the group has not begun; waits 1 = the group's next attempt is in the bucket, or waits for its key. {} = it is about to end
-- with its groups
local function job_row(k, groups, id, record, values, before)
  local concerned, states = states_in(k, groups, id, string.sub(record, 1, 12), values, before)
  if #concerned == 0 then return {} end
  local row = {record, redis.call('ZSCORE', k.bucket, string.sub(record, 1, 12) .. id) and 1 or 0}
  for _, group in ipairs(concerned) do
    local p, n = states[group], #row
    row[n + 1], row[n + 2] = group, p and format(p) or ''
    local waits = p and (redis.call('ZSCORE', k.bucket, member(p.sequence, group, id)) or waits_for_key(k, group, id))
    row[n + 3] = waits and 1 or 0
  end
  return row
end
