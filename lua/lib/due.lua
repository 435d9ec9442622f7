-- include: key_limit, key_tickets, notify_mover, progress, sequence, withdraw

-- set_due(s, job, due): gives a job another due time, for every group that still waits for it. job.groups and job.states: from
-- group_states; no attempt is running.
-- returns whether any group waits for it
local function set_due(s, job, due)
  local head, old = head_ms(s.bucket), string.sub(job.record, 1, 12)
  local withdrawn, main = withdraw(s, job, job.groups, job.states)
  if #withdrawn == 0 then return false end

  -- With a new sequence, entries that are already in a stream are out of date. Once a group has begun, the record keeps
  -- its sequence, so that the shared entry stays valid for groups that are added later.
  local order = later_order(reserve(s.counts, 1) + 1)
  local is_unbegun = next(job.states) == nil
  redis.call('HSET', s.jobs, job.id, (is_unbegun and order or old) .. string.format('%.0f', due)
    .. string.match(job.record, '^%d+(\n.*)$', 13))
  local key = s.key_limit and s.key_limit ~= '0' and key_of(job.record)
  if is_unbegun and key then
    add(s, withdrawn, key, {id = job.id, sequence = order, due = due}) -- it was put in before there was a limit
  elseif is_unbegun then
    redis.call('ZADD', s.bucket, due, order .. job.id)
  else
    for _, group in ipairs(withdrawn) do
      local p = job.states[group] or fresh(order, main)
      p.state, p.entry, p.sequence, p.deadline = 'w', '', order, string.format('%.0f', due)
      redis.call('HSET', s.progress, field_of(group, job.id), format(p))
      if key then
        enqueue_key(s, group, key, {id = job.id, sequence = order, due = due})
      else
        redis.call('ZADD', s.bucket, due, member(order, group, job.id))
        redis.call('HINCRBY', s.counts, 'waiting:' .. group, 1)
      end
    end
  end
  if not head or due < head then notify_mover(s.wake, due) end
  return true
end
