local PACES_AT_ONCE = 500

-- is_delayed(k, group, ticket): returns whether a job that has got a place has not come out of the bucket since
local function is_delayed(k, group, ticket)
  local _, _, sequence, id = lane_in(ticket)
  return redis.call('ZSCORE', k.bucket, member(sequence, group, id))
end

-- change_pace(k, group, lane, now): places of a lane that were given at another pace, or at none, are taken away, as far
-- as these jobs are not due yet, or may not start yet. A job that is ready counts no more as one that has not started: it may
-- have started while there was no pace, and then nothing would tell.
-- k = {key_limit=}
-- returns whether there may be more to take; then call it again
local function change_pace(k, group, lane, now)
  local _, pace = limits_of(k)
  local from, to, more = lane .. '\31', lane .. '\32', false
  for _, mark in ipairs(redis.call('ZRANGEBYLEX', k.fronts, '[\30' .. from, '(\30' .. to)) do
    local ticket = string.sub(mark, 2)
    if not goes_back(k, group, ticket, now) and not (pace and is_delayed(k, group, ticket)) then
      redis.call('ZREM', k.fronts, mark)
    end
  end
  if not pace then return false end
  for _, ticket in ipairs(redis.call('ZREVRANGEBYLEX', k.fronts, '(' .. to, '[' .. from, 'LIMIT', 0, OUT_AT_ONCE)) do
    more = goes_back(k, group, ticket, now) or more
  end
  return more
end

-- forget_paces(k): removes what is kept of starts, step by step, if there is no pace any more.
-- k = {key_limit=}
-- returns whether there may be more to remove; then call it again
local function forget_paces(k)
  local _, pace = limits_of(k)
  local kept = pace and {} or redis.call('ZRANGEBYSCORE', k.crowds, '-inf', '(-1', 'LIMIT', 0, PACES_AT_ONCE)
  if #kept > 0 then redis.call('ZREM', k.crowds, unpack(kept)) end
  return #kept == PACES_AT_ONCE
end
