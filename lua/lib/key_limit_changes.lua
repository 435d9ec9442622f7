-- What apply_key_limit does after a change of the limit or the pace of keys.
local FORGOTTEN_AT_ONCE = 500

-- is_delayed(k, ticket): returns whether an admitted job has not come out of the bucket since
local function is_delayed(k, ticket)
  local group_key, _, sequence, id = parse_ticket(ticket)
  return redis.call('ZSCORE', k.bucket, member(sequence, group_of(group_key), id))
end

-- change_pace(k, group_key): admitted -> waiting, jobs of the key that were admitted at another pace, or at none, as far as
-- they are not due yet, or may not start yet. A job that is ready does not count any more as one that has yet to start: it
-- may have started while there was no pace, when nothing would note that.
-- returns whether there may be more; then call it again
local function change_pace(k, group_key)
  local pace, more = pace_of(k), false
  local from, to = '[' .. group_key .. '\31', '(' .. group_key .. '\32'
  for _, ticket in ipairs(redis.call('ZRANGEBYLEX', k.key_unstarted, from, to)) do
    if not try_demote(k, ticket) and not (pace and is_delayed(k, ticket)) then forget_unstarted(k, ticket) end
  end
  if not pace then return false end
  for _, ticket in ipairs(last_tickets(k.key_admitted, group_key, ADMIT_MANY)) do more = try_demote(k, ticket) or more end
  return more
end

-- forget_starts(k): forgets when jobs may start, step by step, if there is no pace any more.
-- returns whether there may be more to forget; then call it again
local function forget_starts(k)
  local old = pace_of(k) and {} or redis.call('ZRANGE', k.key_next_start, 0, FORGOTTEN_AT_ONCE - 1)
  if #old > 0 then redis.call('ZREM', k.key_next_start, unpack(old)) end
  return #old == FORGOTTEN_AT_ONCE
end
