-- sweep_flows: what the mover does for flows now and then: it opens those that are complete, withdraws those that were not
-- complete in time, and forgets those whose time has passed since they ended: then the flow's own job is ready -> done.
-- keys: jobs, bucket, ready, progress, counts, settings, history, wake, taken, taken_until, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- ARGV[1] now_ms or ''
-- ARGV[2] history cap
-- ARGV[3] limit: how many flows
-- returns {now_ms, left, next_ms, name, life, ...}: left: 1 = call it again; next_ms: when to call again otherwise, -1 = there is
-- nothing to do before a flow is begun or has ended, which wakes the mover; the rest: flows whose deadline has passed
-- flags: allow-oom
-- include: clock, drop_job, flows, groups, link_key, notify_mover, removal, results, stored_format, waits
local s = shard(KEYS)
local topic = redis.call('HMGET', settings, 'groups', 'leaving', 'format', 'after_finish', 'key_limit', 'linked', 'results')
check_format(topic[3])
s.now, s.history_cap, s.groups, s.leaving, s.key_limit = now_ms(ARGV[1]), ARGV[2], names(topic[1]), topic[2], topic[5]
s.on_removed = after_removal(s, topic[4], topic[6])
s.results, s.ended_as = results_in(topic[7]), 'cancelled'
local PAGES, SOON_MS = 10, 1000
local limit, reply = tonumber(ARGV[3]), {s.now, 0, -1}
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
      if f.ended < f.gates then reply[2] = 1 end
    elseif f.state == 'o' and f.deadline_ms > 0 then
      keep_flow(s, name, f, s.now + LOOK_AT_FLOW_MS)
      reply[#reply + 1], reply[#reply + 2] = name, f.life
    else
      forget_flow(s, name)
    end
  end
end

-- forget_ended(): removes flows' own jobs that are ready, and leaves others alone that somebody has put there. Returns how many.
local function forget_ended()
  local n, from = 0, '-'
  for _ = 1, PAGES do
    local page = redis.call('XRANGE', ready, from, '+', 'COUNT', limit)
    for _, entry in ipairs(page) do
      local id = string.sub(entry[2][2], 13)
      local record = redis.call('HGET', jobs, id)
      local w = record and wait_of(s, id .. '\31' .. nonce_of(record))
      if w and is_own(w) then
        drop_job(s, {id = id, record = record}, nil)
        redis.call('XDEL', ready, entry[1])
        n = n + 1
      end
    end
    if #page < limit or n >= limit then break end
    from = '(' .. page[#page][1]
  end
  return n
end

if forget_ended() >= limit or #due == limit then reply[2] = 1 end
local look, head = tonumber(redis.call('ZRANGE', times, 0, 0, 'WITHSCORES')[2]), head_ms(bucket)
if head and head < tonumber(NEVER) then look = math.min(look or math.huge, math.max(head, s.now + SOON_MS)) end
reply[3] = look or -1
return reply
