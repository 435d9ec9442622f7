-- reschedule: delayed, or ready -> delayed with another due time, for every group that still waits for the job.
-- keys: jobs, bucket, progress, counts, settings, wake, key_tickets, key_waiting, key_admitted, key_unstarted,
--   key_counts, key_paused, key_next_start
-- ARGV[1] now_ms or ''
-- ARGV[2] id
-- ARGV[3] when: '+delay_ms', or due_ms
-- ARGV[4] the topic's number of shards, as the caller knows it
-- ARGV[5] 'cover' = write even if nothing is to be changed, so that WAIT covers earlier writes; ''; or none
-- ARGV[6] the job as it was shown (deliveries_in): another delivery is left alone; or none
-- returns 1 = rescheduled; 0 = no such job, or no group waits for it; -1 = an attempt is running; -2 = the caller's
-- settings of the topic are out of date, nothing was changed; -3 = it is no longer as it was shown; -4 = no job that was
-- shown is there
-- flags: allow-oom
-- include: stored_format, clock, groups, progress, delivery, leaving_groups, notify_mover, key_tickets, key_pace,
--   key_limit, sequence, end_in_group, deliveries, group_states, withdraw
local id, when, now = ARGV[2], ARGV[3], now_ms(ARGV[1])
local due = tonumber(when)
if string.byte(when) == 43 then due = now + due end

local topic = redis.call('HMGET', settings, 'shards', 'groups', 'leaving', 'format', 'key_limit')
check_format(topic[4])
if topic[1] ~= ARGV[4] then return -2 end
if ARGV[5] == 'cover' then redis.call('HINCRBY', counts, 'enqueued', 0) end
local record = redis.call('HGET', jobs, id)
if not record then return ARGV[6] and -4 or 0 end
local s, job = shard(KEYS), {id = id, record = record}
s.now, s.groups, s.leaving, s.key_limit = now, names(topic[2]), topic[3], topic[5]
if is_changed(s, job, ARGV[6]) then return -3 end
local concerned, states, is_running = group_states(s, job)
if is_running then return -1 end
local head, old = head_ms(bucket), string.sub(record, 1, 12)
local withdrawn, main = withdraw(s, job, concerned, states)
if #withdrawn == 0 then return 0 end

-- With a new sequence, entries that are already in a stream are out of date. Once a group has begun, the record keeps
-- its sequence, so that the shared entry stays valid for groups that are added later.
local order = later_order(reserve(counts, 1) + 1)
local is_unbegun = next(states) == nil
redis.call('HSET', jobs, id, (is_unbegun and order or old) .. string.format('%.0f', due)
  .. string.match(record, '^%d+(\n.*)$', 13))
local key = topic[5] and topic[5] ~= '0' and key_of(record)
if is_unbegun and key then
  add(s, withdrawn, key, {id = id, sequence = order, due = due}) -- it was put in before there was a limit
elseif is_unbegun then
  redis.call('ZADD', bucket, due, order .. id)
else
  for _, group in ipairs(withdrawn) do
    local p = states[group] or fresh(order, main)
    p.state, p.entry, p.sequence, p.deadline = 'w', '', order, string.format('%.0f', due)
    redis.call('HSET', progress, field_of(group, id), format(p))
    if key then
      enqueue_key(s, group, key, {id = id, sequence = order, due = due})
    else
      redis.call('ZADD', bucket, due, member(order, group, id))
      redis.call('HINCRBY', counts, 'waiting:' .. group, 1)
    end
  end
end
if not head or due < head then notify_mover(wake, due) end
return 1
