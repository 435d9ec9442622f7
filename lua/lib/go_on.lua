-- include: key_limit, key_tickets, progress, requeue

-- go_on(s, job): a job that job.group had given up is due now: it waits for its key, or is ready at once, if it has none.
local function go_on(s, job)
  local key = s.key_limit and s.key_limit ~= '0' and key_of(job.record)
  local p, due = job.progress, string.format('%.0f', s.now)
  if key then
    p.state, p.entry, p.started, p.deadline = 'w', '', '', due
    redis.call('HSET', s.progress, field_of(job.group, job.id), format(p))
    enqueue_key(s, job.group, key, {id = job.id, sequence = p.sequence, due = s.now})
  else
    requeue(s, job, due)
  end
end
