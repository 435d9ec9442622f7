-- open_lanes: one step of applying a changed limit or pace of keys to the jobs that wait for their keys, or have a place and
-- are not due yet. The shard keeps track of how far this is (settings field `opening`, which configure_shard sets: the last
-- lane), so any process can continue, even several at once.
-- keys: bucket, counts, settings, wake, lanes, fronts, crowds
-- ARGV[1] now_ms or ''
-- ARGV[2] limit: how many lanes to look at
-- returns 1 = there is more to do; 0 = the limit is applied
-- flags: allow-oom
-- include: stored_format, clock, progress, ring, lanes, lane_changes
local now = now_ms(ARGV[1])
local topic = redis.call('HMGET', settings, 'opening', 'key_limit', 'format')
check_format(topic[3])
local last = topic[1]
local k = shard(KEYS)
k.key_limit = topic[2] or '0'
if not last then return 0 end
for _ = 1, tonumber(ARGV[2]) do
  -- Each lane with jobs has at least one with a place, so those with a place lead to all lanes.
  local ticket = redis.call('ZRANGEBYLEX', fronts, '(' .. last .. '\32', '+', 'LIMIT', 0, 1)[1]
  if not ticket then
    if forget_paces(k) then return 1 end
    redis.call('HDEL', settings, 'opening')
    return 0
  end
  local lane = lane_in(ticket)
  local group = string.match(lane, '^[^\31]*')
  local more = change_pace(k, group, lane, now)
  more = pull_back(k, group, lane, now) or more
  if advance(k, group, lane, now, more and AT_OTHER_TIMES or OUT_AT_ONCE) or more then return 1 end
  last = lane
  redis.call('HSET', settings, 'opening', last)
  if are_enough_given(k) then break end
end
return 1
