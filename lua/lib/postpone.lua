-- postpone(k, groups, id, record, due, rest, now): gives a waiting job the rest of another record, and this due time if
-- it is not due yet. Once it is due, it stays due: its next attempt has the new body.
-- k = {jobs=, bucket=, progress=, settings=, leaving=}
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
  else
    due = tonumber(before)
  end
  local new = sequence .. string.format('%.0f', due) .. '\n' .. created .. '\n' .. rest
  redis.call('HSET', k.jobs, id, new)
  return new, due
end
