-- replace: cancels the job with the same id, if there is one, and enqueues the new job: nothing, delayed or ready ->
-- delayed.
-- keys: jobs, bucket, ready, progress, counts, settings, history, wake, key_tickets, key_waiting, key_admitted,
--   key_unstarted, key_counts, key_paused, key_next_start, taken, taken_until
-- ARGV[1] now_ms or ''
-- ARGV[2] the topic's number of shards, as lib/is_current.lua takes it
-- ARGV[3] history cap
-- ARGV[4] most bytes of records to read
-- ARGV[5..] per job: id, when ('+delay_ms', or due_ms), rest of the record
-- returns {status, now_ms, looked, i, record_i, ...} as enqueue does; i are the jobs that could not replace the old
-- one, because an attempt is running or the old job is dead; or that are there already, as the call is repeated.
-- include: clock, drop_job, groups, is_current, key_limit, key_tickets, largest, notify_mover, removal, results,
--   sequence, stored_format
local now, most_bytes = now_ms(ARGV[1]), tonumber(ARGV[4])
local topic = redis.call('HMGET', settings, 'shards', 'groups', 'largest', 'leaving', 'format', 'after_finish', 'key_limit',
  'sharded_by_key', 'results', 'linked')
check_format(topic[5])
if not is_current(topic[1], topic[8], ARGV[2]) then return {0, now, 0} end
local s = shard(KEYS)
s.now, s.history_cap, s.groups, s.leaving = now, ARGV[3], names(topic[2]), topic[4]
s.ended_as, s.on_removed = 'replaced', after_removal(s, topic[6], topic[10])
s.key_limit, s.results = topic[7], results_in(topic[9])
local limited = topic[7] and topic[7] ~= '0'
local head, count = head_ms(bucket), (#ARGV - 4) / 3
local before = redis.call('HINCRBY', counts, 'enqueued', count) - count -- always written, as in enqueue
local reply, created, earliest, bytes, longest = {1, now, count}, 0, nil, 0, 0

for i = 5, #ARGV, 3 do
  local id, when, rest = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local record, due = redis.call('HGET', jobs, id), tonumber(when)
  if string.byte(when) == 43 then due = now + due end
  local is_repeated = record and string.sub(record, -#rest) == rest -- with the same nonce
  if is_repeated or record and drop_job(s, {id = id, record = record}, nil) ~= 1 then
    reply[#reply + 1] = (i - 2) / 3
    reply[#reply + 1] = record
  else
    created = created + 1
    forget_results(s, id)
    local order = first_order(before + created)
    local new = order .. string.format('%.0f\n%.0f\n', due, now) .. rest
    redis.call('HSET', jobs, id, new)
    longest = math.max(longest, #new)
    local key = limited and key_in(rest, 1)
    if key then
      if add(s, s.groups, key, {id = id, sequence = order, due = due}) then bytes = most_bytes end
    else
      redis.call('ZADD', bucket, due, order .. id)
      if not earliest or due < earliest then earliest = due end
    end
  end
  if record then bytes = bytes + #record end
  if bytes >= most_bytes then
    reply[3] = (i - 2) / 3
    break
  end
end
note_largest(settings, topic[3], longest)
if created < count then redis.call('HINCRBY', counts, 'enqueued', created - count) end
if earliest and (not head or earliest < head) then notify_mover(wake, earliest) end
return reply
