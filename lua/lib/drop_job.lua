-- include: end_in_group, group_states, history, report_end, waits, withdraw

-- cancel_in(s, job, group, p): counts that the job, which was withdrawn, is cancelled for the group, and keeps that as its
-- result. p: its progress, or nil.
-- returns the history row
local function cancel_in(s, job, group, p)
  redis.call('HINCRBY', s.counts, 'cancelled:' .. group, 1)
  local own = {group = group, id = job.id, record = job.record, progress = p}
  report_end(s, own, 'cancelled|')
  return rare_row(s, 'cancelled', own, {due = p and p.deadline ~= '' and p.deadline})
end

-- drop_job(s, job, dead): cancels the job for every group that still waits for it, and removes it. dead = {[group] =
-- dead:GROUP} also removes its dead letters; with nil, a job that has dead letters stays as it is.
-- returns 1 = done; or, with nothing changed: 0 = no group waits for it, or it is dead in one and `dead` is nil; -1 =
-- an attempt is running
local function drop_job(s, job, dead)
  local concerned, states, is_running = group_states(s, job)
  if is_running then return -1 end
  local letters = {}
  for _, group in ipairs(concerned) do
    if states[group] and states[group].state == 'd' then letters[#letters + 1] = group end
  end
  if #letters > 0 and not dead then return 0 end
  local withdrawn, main = withdraw(s, job, concerned, states)
  if #withdrawn == 0 then return 0 end
  local rows = {}
  for i, group in ipairs(withdrawn) do rows[i] = cancel_in(s, job, group, states[group]) end
  for _, group in ipairs(letters) do
    redis.call('ZREM', dead[group], job.id)
    redis.call('HINCRBY', s.counts, 'purged:' .. group, 1)
  end
  remember(s, rows)
  forget(s, job.id, main)
  stop_waiting_for(s, job)
  return 1
end
