-- is_unbegun(states): returns whether no group has begun an attempt of the job, which has progress because of its key
local function is_unbegun(states)
  for _, p in pairs(states) do
    if p.main ~= '-' or attempt_of(p, 0) ~= '0' then return false end
  end
  return next(states) ~= nil
end

-- line_up_anew(k, groups, states, id, due, key, now): the job of a key, which is not due yet, gets another due time, and
-- perhaps another key or none.
-- k = {bucket=, progress=, keyed=, lanes=, fronts=, crowds=, counts=, wake=, key_limit=}
local function line_up_anew(k, groups, states, id, due, key, now)
  for _, group in ipairs(groups) do
    local p = states[group]
    if not free_place(k, group, id, now) and redis.call('ZREM', k.bucket, member(p.sequence, group, id)) == 1 then
      redis.call('HINCRBY', k.counts, 'waiting:' .. group, -1)
    end
    p.deadline = string.format('%.0f', due)
    redis.call('HSET', k.progress, field_of(group, id), format(p))
    if key and k.key_limit ~= '0' then
      advance(k, group, line_up(k, group, key, id, p.sequence, due), now)
    else
      redis.call('ZADD', k.bucket, due, member(p.sequence, group, id))
      redis.call('HINCRBY', k.counts, 'waiting:' .. group, 1)
    end
  end
end

-- postpone(k, groups, id, record, due, rest, now): gives a waiting job the rest of another record, and this due time if
-- it is not due yet. Once it is due, it stays due: its next attempt has the new body.
-- k = {jobs=, bucket=, progress=, settings=, leaving=, keyed=, lanes=, fronts=, crowds=, counts=, wake=, key_limit=}
-- returns the job's new record, and its due time; nil = nothing was changed, because an attempt is running or a group
-- has ended the job
local function postpone(k, groups, id, record, due, rest, now)
  local sequence = string.sub(record, 1, 12)
  local concerned, states, running = group_states(k, groups, id, sequence)
  if running or #concerned == 0 then return nil end
  for _, p in pairs(states) do if p.state ~= 'w' then return nil end end
  local before, created = string.match(record, '^(%d+)\n(%d+)\n', 13)
  if tonumber(before) > now and redis.call('ZSCORE', k.bucket, sequence .. id) then
    redis.call('ZADD', k.bucket, due, sequence .. id)
  elseif k.key_limit and tonumber(before) > now and is_unbegun(states) then
    line_up_anew(k, concerned, states, id, due, key_in(rest, 1), now)
  else
    due = tonumber(before)
  end
  local new = sequence .. string.format('%.0f', due) .. '\n' .. created .. '\n' .. rest
  redis.call('HSET', k.jobs, id, new)
  return new, due
end
