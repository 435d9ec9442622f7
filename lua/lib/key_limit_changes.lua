-- include: key_limit, key_pace, key_tickets, progress

-- What apply_key_limit does after a change of the limit or the pace of keys.
local FORGOTTEN_AT_ONCE = 500

-- change_pace(s, group_key): admitted -> waiting, jobs of the key that were admitted at another pace, or at none, as far as
-- they are not due yet, or may not start yet. A job that is ready does not count any more as one that has yet to start: it
-- may have started while there was no pace, when nothing would note that.
-- returns whether there may be more; then call it again
local function change_pace(s, group_key)
  local pace, more = pace_of(s), false
  local from, to = '[' .. group_key .. '\31', '(' .. group_key .. '\32'
  for _, ticket in ipairs(redis.call('ZRANGEBYLEX', s.key_unstarted, from, to)) do
    local _, _, sequence, id = parse_ticket(ticket)
    local delivery = member(sequence, group_of(group_key), id)
    if not try_demote(s, ticket) and not (pace and redis.call('ZSCORE', s.bucket, delivery)) then forget_unstarted(s, ticket) end
  end
  if not pace then return false end
  for _, ticket in ipairs(last_tickets(s.key_admitted, group_key, ADMIT_MANY)) do more = try_demote(s, ticket) or more end
  return more
end

-- forget_starts(s): forgets when jobs may start, step by step, if there is no pace any more.
-- returns whether there may be more to forget; then call it again
local function forget_starts(s)
  local old = pace_of(s) and {} or redis.call('ZRANGE', s.key_next_start, 0, FORGOTTEN_AT_ONCE - 1)
  if #old > 0 then redis.call('ZREM', s.key_next_start, unpack(old)) end
  return #old == FORGOTTEN_AT_ONCE
end
