-- include: key_limit, progress

-- job_row(s, job): what there is to know of a job; job.groups and job.states: from states_in.
-- returns {record, delayed, group, progress, waits, ...}: delayed 1 = its first delivery is in the bucket; progress '' =
-- the group has not begun; waits 1 = the group's next attempt is in the bucket, or waits for its key. {} = it is about to end
-- with its groups
local function job_row(s, job)
  if #job.groups == 0 then return {} end
  local row = {job.record, redis.call('ZSCORE', s.bucket, string.sub(job.record, 1, 12) .. job.id) and 1 or 0}
  for _, group in ipairs(job.groups) do
    local p, n = job.states[group], #row
    row[n + 1], row[n + 2] = group, p and format(p) or ''
    local waits = p and (redis.call('ZSCORE', s.bucket, member(p.sequence, group, job.id)) or waits_for_key(s, group, job.id))
    row[n + 3] = waits and 1 or 0
  end
  return row
end
