-- drop_job(k, groups, id, record, now, event, whole): the job ends as cancelled for every group that still waits for it;
-- `whole`: only if then nothing is left of it. Returns 1, 0 (nothing done: no group waits for it, or it is dead for one
-- and `whole` was asked for) or -1 (nothing done: an attempt is running).
-- k = {jobs=, bucket=, ready=, progress=, counts=, settings=, history=, cap=}
local function drop_job(k, groups, id, record, now, event, whole)
  local concerned, states, running = standing(k, groups, id)
  if running then return -1 end
  local dead = false
  for _, group in ipairs(concerned) do dead = dead or (states[group] and states[group].state == 'd') end
  if dead and whole then return 0 end
  local withdrawn, main = withdraw(k, concerned, states, id, string.sub(record, 1, 12))
  if #withdrawn == 0 then return 0 end
  local rows = {}
  for i, group in ipairs(withdrawn) do
    local p = states[group]
    redis.call('HINCRBY', k.counts, 'cancelled:' .. group, 1)
    local due = p and p.deadline ~= '' and p.deadline or nil
    rows[i] = rare_row(event, id, group, p, record, now, {due = due})
    if dead then -- another group keeps the record for its dead letter
      redis.call('HSET', k.progress, field_of(group, id), 'x|0|0|0|' .. main .. '|||||')
      redis.call('HINCRBY', k.counts, 'through:' .. group, 1)
    end
  end
  remember(k.history, k.counts, k.settings, k.cap, rows)
  if not dead then forget(k, groups, id, main) end
  return 1
end
