-- audit_keys: reads a page of the keys for which jobs wait, and then of the places of keys, and finds keys whose next job
-- should have a place, and places whose jobs have ended. It changes nothing.
-- keys: settings, lanes, fronts, crowds, keyed, progress
-- ARGV[1] where the previous page ended; '' at first
-- ARGV[2] limit: at most so many keys, or places
-- returns {last, reason, id, ...}: last = where this page ends: 'l' and a lane, or 'p' and a place; '' = it was the last one.
-- reason 'free' = the job waits, though its key has a free place; 'ended' = the job has ended, and has a place
-- runs while its slot moves
-- flags: no-writes
-- include: stored_format, progress, ring, lanes
local topic = redis.call('HMGET', settings, 'key_limit', 'format', 'opening')
check_format(topic[2])
local k = shard(KEYS)
k.key_limit = topic[1] or '0'
local limit, pace = limits_of(k)
local part, last, most = string.sub(ARGV[1], 1, 1), string.sub(ARGV[1], 2), tonumber(ARGV[2])
local reply = {'p'}
local function found(reason, id)
  reply[#reply + 1] = reason
  reply[#reply + 1] = id
end

local function look_at_lanes()
  for _ = 1, most do
    local first = redis.call('ZRANGEBYLEX', lanes, last == '' and '-' or '(' .. last .. '\32', '+', 'LIMIT', 0, 1)[1]
    if not first then return end
    local lane, _, _, id = lane_in(first)
    local taken = redis.call('ZLEXCOUNT', fronts, '[' .. lane .. '\31', '(' .. lane .. '\32')
    -- While a change of the limit is applied, places are given step by step.
    if not topic[3] and not is_paused(k, lane) and not is_full(k, lane, taken, limit, pace) then found('free', id) end
    last = lane
  end
  reply[1] = 'l' .. last
end

-- A place is that of an attempt that runs or is to come, of a job that knows of it; and only who has one has yet to start.
local function is_right(ticket, is_mark)
  if is_mark then return redis.call('ZSCORE', fronts, ticket) end
  local lane, _, _, id = lane_in(ticket)
  local field = field_of(string.match(lane, '^[^\31]*'), id)
  local p = parse(redis.call('HGET', progress, field))
  return p and (p.state == 'r' or p.state == 'w') and redis.call('HGET', keyed, field) == ticket
end

local function look_at_places()
  local places = redis.call('ZRANGEBYLEX', fronts, last == '' and '-' or '(' .. last, '+', 'LIMIT', 0, most)
  for _, place in ipairs(places) do
    local is_mark = string.byte(place) == 30
    local ticket = is_mark and string.sub(place, 2) or place
    if not is_right(ticket, is_mark) then
      local _, _, _, id = lane_in(ticket)
      found('ended', id)
    end
  end
  reply[1] = #places == most and 'p' .. places[most] or ''
end

if part == 'p' then look_at_places() else look_at_lanes() end
return reply
