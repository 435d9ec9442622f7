-- drop_job(k, groups, id, record, now, dead): cancels the job for every group that still waits for it, and removes it.
-- dead = {[group] = dead:GROUP} also removes its dead letters; with nil, a job that has dead letters stays as it is.
-- returns 1 = done; or, with nothing changed: 0 = no group waits for it, or it is dead in one and `dead` is nil; -1 =
-- an attempt is running
local function drop_job(k, groups, id, record, now, dead)
  local concerned, states, running = group_states(k, groups, id, string.sub(record, 1, 12))
  if running then return -1 end
  local letters = {}
  for _, group in ipairs(concerned) do
    if states[group] and states[group].state == 'd' then letters[#letters + 1] = group end
  end
  if #letters > 0 and not dead then return 0 end
  local withdrawn, main = withdraw(k, concerned, states, id, string.sub(record, 1, 12))
  if #withdrawn == 0 then return 0 end
  local rows = {}
  for i, group in ipairs(withdrawn) do
    local p = states[group]
    redis.call('HINCRBY', k.counts, 'cancelled:' .. group, 1)
    rows[i] = rare_row('cancelled', id, group, p, record, now, {due = p and p.deadline ~= '' and p.deadline})
  end
  for _, group in ipairs(letters) do
    redis.call('ZREM', dead[group], id)
    redis.call('HINCRBY', k.counts, 'purged:' .. group, 1)
  end
  remember(k.history, k.counts, k.settings, k.cap, rows)
  forget(k, groups, id, main)
  return 1
end
