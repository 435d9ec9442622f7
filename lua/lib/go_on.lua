-- go_on(k, group, id, p, record, now): a job that the group had given up is due now: it waits for its key, or is
-- ready at once, if it has none. p: as for requeue.
local function go_on(k, group, id, p, record, now)
  local key = k.key_limit and k.key_limit ~= '0' and key_of(record)
  local due = string.format('%.0f', now)
  if key then
    p.state, p.entry, p.started, p.deadline = 'w', '', '', due
    redis.call('HSET', k.progress, field_of(group, id), format(p))
    enqueue_key(k, group, key, {id = id, sequence = p.sequence, due = now})
  else
    requeue(k, group, id, p, due, now)
  end
end
