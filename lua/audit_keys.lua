-- audit_keys: reads a page of the keys for which jobs wait, and finds those whose next job should have a place, or whose
-- places belong to jobs that have ended. It changes nothing.
-- KEYS[1] settings  HASH
-- KEYS[2] lanes     ZSET
-- KEYS[3] fronts    ZSET
-- KEYS[4] crowds    ZSET
-- KEYS[5] keyed     HASH
-- ARGV[1] the last lane of the previous page; '' at first
-- ARGV[2] limit: at most so many keys
-- returns {last, reason, id, ...}: reason 'free' = the job waits, though its key has a free place; 'ended' = the job has
-- ended, and has a place. last '' = this was the last page
-- runs while its slot moves
-- include: progress, ring, lanes, stored_format
local settings, lanes, fronts, crowds, keyed = unpack(KEYS)
local topic = redis.call('HMGET', settings, 'key_limit', 'format', 'opening')
check_format(topic[2])
local k = {lanes = lanes, fronts = fronts, crowds = crowds, keyed = keyed, key_limit = topic[1] or '0'}
local limit, pace = limits_of(k)
local last, reply = ARGV[1], {''}
local function found(reason, id)
  reply[#reply + 1] = reason
  reply[#reply + 1] = id
end
for n = 1, tonumber(ARGV[2]) do
  local first = redis.call('ZRANGEBYLEX', lanes, last == '' and '-' or '(' .. last .. '\32', '+', 'LIMIT', 0, 1)[1]
  if not first then return reply end
  local lane, _, _, id = lane_in(first)
  local group = string.match(lane, '^[^\31]*')
  local taken = redis.call('ZLEXCOUNT', fronts, '[' .. lane .. '\31', '(' .. lane .. '\32')
  -- While a change of the limit is applied, places are given step by step.
  if not topic[3] and not is_paused(k, lane) and not is_full(k, lane, taken, limit, pace) then found('free', id) end
  for _, ticket in ipairs(redis.call('ZRANGEBYLEX', fronts, '[' .. lane .. '\31', '(' .. lane .. '\32', 'LIMIT', 0,
    OUT_AT_ONCE)) do
    local _, _, _, holder = lane_in(ticket)
    if redis.call('HGET', keyed, field_of(group, holder)) ~= ticket then found('ended', holder) end
  end
  last = lane
end
reply[1] = last
return reply
