-- sweep_flows: what the mover does for flows now and then: it opens those that are complete, withdraws those that were not
-- complete in time, and forgets those whose time has passed since they ended: then the flow's own job is ready -> done.
-- keys: jobs, bucket, ready, progress, counts, settings, history, wake, taken, taken_until, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- ARGV[1] now_ms or ''
-- ARGV[2] history cap
-- ARGV[3] limit: how many flows
-- returns {left, name, life, ...}: left: 1 = call it again; the rest: flows whose deadline has passed
-- flags: allow-oom
-- include: clock, drop_job, flows, groups, link_key, removal, results, stored_format
local s = shard(KEYS)
local topic = redis.call('HMGET', settings, 'groups', 'leaving', 'format', 'after_finish', 'key_limit', 'linked', 'results')
check_format(topic[3])
s.now, s.history_cap, s.groups, s.leaving, s.key_limit = now_ms(ARGV[1]), ARGV[2], names(topic[1]), topic[2], topic[5]
s.on_removed = after_removal(s, topic[4], topic[6])
s.results, s.ended_as = results_in(topic[7]), 'cancelled'
local limit, reply = tonumber(ARGV[3]), {0}
local flows, times = link_key(s, 'flows'), link_key(s, 'flow_times')
local due = redis.call('ZRANGEBYSCORE', times, '-inf', string.format('%.0f', s.now), 'LIMIT', 0, limit)
for _, name in ipairs(due) do
  local text = redis.call('HGET', flows, name)
  local f = text and flow_in(text)
  if not f then
    redis.call('ZREM', times, name)
  else
    if f.state == 'b' and is_complete(s, name, f) then f.state = 'o'
    elseif f.state == 'b' and f.until_ms <= s.now then f.state = 'w' end
    if f.state == 'b' then
      keep_flow(s, name, f, look_at(s, f))
    elseif f.ended < f.gates then
      end_gates(s, name, f, {})
      if f.ended < f.gates then reply[1] = 1 end
    elseif f.state == 'o' and f.deadline_ms > 0 then
      keep_flow(s, name, f, s.now + LOOK_AT_FLOW_MS)
      reply[#reply + 1], reply[#reply + 2] = name, f.life
    else
      forget_flow(s, name)
    end
  end
end
local over = redis.call('XRANGE', ready, '-', '+', 'COUNT', limit)
for _, entry in ipairs(over) do
  local id = string.sub(entry[2][2], 13)
  local record = redis.call('HGET', jobs, id)
  if record then drop_job(s, {id = id, record = record}, nil) end
  redis.call('XDEL', ready, entry[1])
end
if #due == limit or #over == limit then reply[1] = 1 end
return reply
