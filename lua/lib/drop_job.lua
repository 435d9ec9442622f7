-- drop_job(k, groups, id, record, now, event): the job ends as cancelled for every group that still waits for it.
-- Returns 1, 0 (no group waits for it: all are through, or it is dead) or -1 (an attempt is running: nothing done).
-- k = {jobs=, bucket=, ready=, progress=, counts=, history=, cap=}
local function drop_job(k, groups, id, record, now, event)
  local concerned, states, running = standing(k, groups, id)
  if running then return -1 end
  local withdrawn, main = withdraw(k, concerned, states, id, string.sub(record, 1, 12))
  if #withdrawn == 0 then return 0 end
  local due, created = string.match(record, '^(%d+)\n(%d+)', 13)
  local dead = false
  for _, group in ipairs(concerned) do dead = dead or (states[group] and states[group].state == 'd') end
  for _, group in ipairs(withdrawn) do
    local p = states[group]
    redis.call('HINCRBY', k.counts, 'cancelled:' .. group, 1)
    remember(k.history, k.cap, table.concat({event, id, group, p and p.attempt or 0, '', created, due, '', '', '', '',
      string.format('%.0f', now)}, '\31'))
    if dead then -- another group keeps the record for its dead letter
      redis.call('HSET', k.progress, field_of(group, id), 'x|0|0|0|' .. main .. '|||||')
      redis.call('HINCRBY', k.counts, 'through:' .. group, 1)
    end
  end
  if not dead then forget(k, groups, id, main) end
  return 1
end
