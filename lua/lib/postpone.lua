-- is_unbegun(states): returns whether no group has begun an attempt of the job, which has progress all the same: because of
-- its key, or as a worker handed it back
local function is_unbegun(states)
  for _, p in pairs(states) do
    if attempt_of(p, 0) ~= '0' then return false end
  end
  return next(states) ~= nil
end

-- line_up_anew(k, groups, states, id, sequence, due, before, key): the groups that have progress with the job wait for
-- it anew, with this due time and key; all of them, if the topic limits keys. due '' = each keeps its own, which is that of
-- the record, `before`, if its progress has none. key nil = none. What they have in a stream is out of date from now on.
local function line_up_anew(k, groups, states, id, sequence, due, before, key)
  local theirs, order, limited = {}, later_order(reserve(k.counts, 1) + 1), key and k.key_limit ~= '0'
  for _, group in ipairs(groups) do
    if limited or states[group] then theirs[#theirs + 1] = group end
  end
  local _, main = withdraw(k, theirs, states, id, sequence)
  for _, group in ipairs(theirs) do
    local p = states[group] or fresh(order, main)
    p.sequence = order
    p.deadline = due ~= '' and due or p.deadline ~= '' and p.deadline or before
    redis.call('HSET', k.progress, field_of(group, id), format(p))
    if limited then
      enqueue_key(k, group, key, {id = id, sequence = order, due = p.deadline})
    else
      redis.call('ZADD', k.bucket, p.deadline, member(order, group, id))
      redis.call('HINCRBY', k.counts, 'waiting:' .. group, 1)
    end
  end
  k.added = (k.added or 0) + #theirs
end

-- takes_key(k, groups, id, sequence, due, key): a job that no group has begun, and that did not wait for this key when it was
-- put in, does from now on. An entry that it has in a stream is out of date.
-- returns its new sequence
local function takes_key(k, groups, id, sequence, due, key)
  withdraw(k, groups, {}, id, sequence)
  local order = later_order(reserve(k.counts, 1) + 1)
  add(k, groups, key, {id = id, sequence = order, due = due})
  return order
end

-- postpone(k, groups, id, record, due, rest, now): gives a waiting job the rest of another record, and this due time if
-- it is not due yet. Once it is due, it stays due: its next attempt has the new body.
-- returns the job's new record, and its due time; nil = nothing was changed, because an attempt is running or a group
-- has ended the job
local function postpone(k, groups, id, record, due, rest, now)
  local sequence = string.sub(record, 1, 12)
  local concerned, states = group_states(k, groups, id, sequence)
  if #concerned == 0 then return nil end
  for _, p in pairs(states) do if p.state ~= 'w' then return nil end end
  local before, created = string.match(record, '^(%d+)\n(%d+)\n', 13)
  local key = k.key_limit and key_in(rest, 1)
  local other, is_due = k.key_limit and key ~= key_of(record), tonumber(before) <= now
  if other and key and k.key_limit ~= '0' and next(states) == nil then
    if is_due then due = tonumber(before) end
    sequence = takes_key(k, concerned, id, sequence, due, key)
  elseif not is_due and redis.call('ZSCORE', k.bucket, sequence .. id) then
    redis.call('ZADD', k.bucket, due, sequence .. id)
  else
    local put_off = not is_due and is_unbegun(states)
    if not put_off then due = tonumber(before) end
    if put_off or other then
      line_up_anew(k, concerned, states, id, sequence, put_off and string.format('%.0f', due) or '', before, key)
    end
  end
  local new = sequence .. string.format('%.0f', due) .. '\n' .. created .. '\n' .. rest
  redis.call('HSET', k.jobs, id, new)
  return new, due
end
