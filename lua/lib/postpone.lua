-- include: followers, group_states, key_limit, key_tickets, progress, sequence, waits, withdraw

-- is_unbegun(states): returns whether no group has begun an attempt of the job, which has progress all the same: because of
-- its key, or as a worker handed it back
local function is_unbegun(states)
  for _, p in pairs(states) do
    if attempt_of(p, 0) ~= '0' then return false end
  end
  return next(states) ~= nil
end

-- enqueue_anew(s, job, due, key): the groups that have progress with the job wait for it anew, with this due time and key;
-- all of them, if the topic limits keys. job.groups and job.states: from group_states. due '' = each keeps its own, which is
-- that of the record if its progress has none. key nil = none. What they have in a stream is out of date from now on.
local function enqueue_anew(s, job, due, key)
  local theirs, order, is_limited = {}, later_order(reserve(s.counts, 1) + 1), key and s.key_limit ~= '0'
  for _, group in ipairs(job.groups) do
    if is_limited or job.states[group] then theirs[#theirs + 1] = group end
  end
  local _, main = withdraw(s, job, theirs, job.states)
  for _, group in ipairs(theirs) do
    local p = job.states[group] or fresh(order, main)
    p.sequence = order
    p.deadline = due ~= '' and due or p.deadline ~= '' and p.deadline or string.match(job.record, '^%d+', 13)
    redis.call('HSET', s.progress, field_of(group, job.id), format(p))
    if is_limited then
      enqueue_key(s, group, key, {id = job.id, sequence = order, due = p.deadline})
    else
      redis.call('ZADD', s.bucket, p.deadline, member(order, group, job.id))
      redis.call('HINCRBY', s.counts, 'waiting:' .. group, 1)
    end
  end
  s.added = (s.added or 0) + #theirs
end

-- take_key(s, job, due, key): a job that no group has begun, and that did not wait for this key when it was put in, does so
-- from now on. An entry that it has in a stream is out of date.
-- returns its new sequence
local function take_key(s, job, due, key)
  withdraw(s, job, job.groups, {})
  local order = later_order(reserve(s.counts, 1) + 1)
  add(s, job.groups, key, {id = job.id, sequence = order, due = due})
  return order
end

-- postpone(s, job, due, rest): gives a waiting job the rest of another record, and this due time if it is not due yet. Once
-- it is due, it stays due: its next attempt has the new body.
-- returns the job's new record, and its due time; nil = nothing was changed, because an attempt is running, a group has ended
-- the job, or it waits, or has waited, for other jobs, or belongs to a flow: with another nonce it would be another job
local function postpone(s, job, due, rest)
  if is_waiting(job.record) then return nil end
  if s.linked and (is_in_flow(s, job.id) or wait_of(s, job.id .. '\31' .. nonce_of(job.record))) then return nil end
  local sequence = string.sub(job.record, 1, 12)
  job.groups, job.states = group_states(s, job)
  if #job.groups == 0 then return nil end
  for _, p in pairs(job.states) do if p.state ~= 'w' then return nil end end
  local before, created = string.match(job.record, '^(%d+)\n(%d+)\n', 13)
  local key = s.key_limit and key_in(rest, 1)
  local is_other, is_due = s.key_limit and key ~= key_of(job.record), tonumber(before) <= s.now
  if is_other and key and s.key_limit ~= '0' and next(job.states) == nil then
    if is_due then due = tonumber(before) end
    sequence = take_key(s, job, due, key)
  elseif not is_due and redis.call('ZSCORE', s.bucket, sequence .. job.id) then
    redis.call('ZADD', s.bucket, due, sequence .. job.id)
  else
    local put_off = not is_due and is_unbegun(job.states)
    if not put_off then due = tonumber(before) end
    if put_off or is_other then enqueue_anew(s, job, put_off and string.format('%.0f', due) or '', key) end
  end
  local new = sequence .. string.format('%.0f', due) .. '\n' .. created .. '\n' .. rest
  redis.call('HSET', s.jobs, job.id, new)
  return new, due
end
