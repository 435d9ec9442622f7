-- replace: cancels the job with the same id, if there is one, and enqueues the new job: nothing, delayed or ready ->
-- delayed.
-- KEYS[1] jobs      HASH
-- KEYS[2] bucket    ZSET
-- KEYS[3] ready     STREAM
-- KEYS[4] progress  HASH
-- KEYS[5] counts    HASH
-- KEYS[6] settings  HASH
-- KEYS[7] history   STREAM
-- KEYS[8] wake      STREAM
-- KEYS[9] lanes  ZSET
-- KEYS[10] fronts  ZSET
-- KEYS[11] keyed  HASH
-- KEYS[12] crowds  ZSET
-- KEYS[13] taken     HASH
-- KEYS[14] taken_until  ZSET
-- ARGV[1] now_ms or ''
-- ARGV[2] the topic's number of shards, as lib/is_current.lua takes it
-- ARGV[3] history cap
-- ARGV[4] most bytes of records to read
-- ARGV[5..] per job: id, when ('+delay_ms', or due_ms), rest of the record
-- returns {status, now_ms, looked, i, record_i, ...} as enqueue does; i are the jobs that could not replace the old
-- one, because an attempt is running or the old job is dead; or that are there already, as the call is repeated.
-- include: clock, sequence, progress, ring, settle, history, leaving_groups, group_states, lanes, withdraw, drop_job, largest, stored_format, is_current, taken
local jobs, bucket, ready, progress, counts, settings, history, wake, lanes, fronts, keyed, crowds, taken, taken_until = unpack(KEYS)
local now, most_bytes = now_ms(ARGV[1]), tonumber(ARGV[4])
local topic = redis.call('HMGET', settings, 'shards', 'groups', 'largest', 'leaving', 'format', 'after_finish', 'key_limit',
  'keyed')
check_format(topic[5])
if not is_current(topic[1], topic[8], ARGV[2]) then return {0, now, 0} end
local groups = names(topic[2])
local k = {jobs = jobs, bucket = bucket, ready = ready, progress = progress, counts = counts, settings = settings,
  history = history, cap = ARGV[3], leaving = topic[4],
  lanes = lanes, fronts = fronts, keyed = keyed, crowds = crowds}
k.gone = leaving_pool(topic[6], taken, taken_until, now)
k.wake, k.key_limit = wake, topic[7]
local limited = topic[7] and topic[7] ~= '0'
local head, count = head_ms(bucket), (#ARGV - 4) / 3
local before = redis.call('HINCRBY', counts, 'enqueued', count) - count -- always written, as in enqueue
local reply, created, earliest, bytes, longest = {1, now, count}, 0, nil, 0, 0

for i = 5, #ARGV, 3 do
  local id, when, rest = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local record, due = redis.call('HGET', jobs, id), tonumber(when)
  if string.byte(when) == 43 then due = now + due end
  local again = record and string.sub(record, -#rest) == rest -- with the same nonce
  if again or record and drop_job(k, groups, id, record, now, nil) ~= 1 then
    reply[#reply + 1] = (i - 2) / 3
    reply[#reply + 1] = record
  else
    created = created + 1
    local order = first_order(before + created)
    local new = order .. string.format('%.0f\n%.0f\n', due, now) .. rest
    redis.call('HSET', jobs, id, new)
    longest = math.max(longest, #new)
    local key = limited and key_in(rest, 1)
    if key then
      if enter(k, groups, id, key, order, due, now) then bytes = most_bytes end
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
if earliest and (not head or earliest < head) then ring(wake, earliest) end
return reply
