-- too_early(k, ticket, now): returns from when on the job may start, if that is not yet; in a topic with a pace
-- k = {key_limit=}
local function too_early(k, ticket, now)
  local _, pace = limits_of(k)
  local from = math.ceil(free_from(k, (lane_in(ticket)), pace, now))
  return from - LAG_MS > now and from
end

-- note_start(k, group, ticket, now): an attempt of the job starts, in a topic with a pace. The next one of its key follows.
-- k = {key_limit=, places_given=}
local function note_start(k, group, ticket, now)
  local _, pace = limits_of(k)
  local lane = lane_in(ticket)
  local from = math.max(free_from(k, lane, pace, now), now - LAG_MS) + pace
  redis.call('ZADD', k.crowds, string.format('%.3f', -from), '\30' .. lane)
  local idle = redis.call('ZRANGEBYSCORE', k.crowds, LAG_MS - now, '(-1', 'LIMIT', 0, 2)
  if #idle > 0 then redis.call('ZREM', k.crowds, unpack(idle)) end
  if redis.call('ZREM', k.fronts, '\30' .. ticket) == 1 then advance(k, group, lane, now) end
end
