-- include: progress, report_end

-- bury_job(s, job, note): running -> dead, for job.group. note: the reason and the error, 'reason|error'. Jobs that
-- wait for it are notified.
local function bury_job(s, job, note)
  local p = job.progress
  p.state, p.entry, p.started, p.deadline, p.note = 'd', '', '', '', note
  redis.call('HSET', s.progress, field_of(job.group, job.id), format(p))
  redis.call('ZADD', s.dead, s.now, job.id)
  redis.call('HINCRBY', s.counts, 'dead:' .. job.group, 1)
  report_end(s, job, 'dead|' .. note)
end
