-- include: attempt_row, end_in_group, history, key_limit, report_end

-- end_aborted(s, job): running -> cancelled, for job.group, which is s.group: an attempt that was aborted has ended, or is
-- lost with its consumer. The caller has acknowledged its entry.
local function end_aborted(s, job)
  local p, group = job.progress, job.group
  job.record = job.record or redis.call('HGET', s.jobs, job.id)
  if p.entry ~= '' then redis.call('XDEL', s.own, p.entry) end
  redis.call('HINCRBY', s.counts, 'running:' .. group, -1)
  redis.call('HINCRBY', s.counts, 'cancelled:' .. group, 1)
  report_end(s, job, 'cancelled|')
  if job.record then remember(s, {attempt_row(s, 'cancelled', job, 'aborted')}) end
  fail_in_group(s, 'cancelled', {job.id}, {p.main})
  release_key(s, group, job.id)
end
