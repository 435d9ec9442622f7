-- replace: a job takes the place of the one with the same id, if there is one: the old one is cancelled, the new delayed.
-- KEYS[1] jobs      HASH
-- KEYS[2] bucket    ZSET
-- KEYS[3] ready     STREAM
-- KEYS[4] progress  HASH
-- KEYS[5] counts    HASH
-- KEYS[6] settings  HASH
-- KEYS[7] history   STREAM
-- KEYS[8] wake      STREAM
-- ARGV[1] now_ms or ''
-- ARGV[2] shards
-- ARGV[3] history cap
-- ARGV[4..] per job: id, when ('+delay_ms', or due_ms), rest of the record
-- returns {status, now_ms, i, record_i, ...} as enqueue does; i are the jobs that could not be replaced, because an
-- attempt is running or the job is dead.
-- include: clock, sequence, progress, ring, settle, history, standing, drop_job
local jobs, bucket, ready, progress, counts, settings, history, wake = unpack(KEYS)
local now = now_ms(ARGV[1])
local topic = redis.call('HMGET', settings, 'shards', 'groups')
if topic[1] ~= ARGV[2] then return {0, now} end
local groups = names(topic[2])
local k = {jobs = jobs, bucket = bucket, ready = ready, progress = progress, counts = counts, settings = settings,
  history = history, cap = ARGV[3]}
local head, count = head_ms(bucket), (#ARGV - 3) / 3
local before = redis.call('HINCRBY', counts, 'enqueued', count) - count
local reply, created, earliest = {1, now}, 0, nil

for i = 4, #ARGV, 3 do
  local id, when = ARGV[i], ARGV[i + 1]
  local record, due = redis.call('HGET', jobs, id), tonumber(when)
  if string.byte(when) == 43 then due = now + due end
  if record and drop_job(k, groups, id, record, now, nil) ~= 1 then
    reply[#reply + 1] = (i - 1) / 3
    reply[#reply + 1] = record
  else
    created = created + 1
    local order = first_order(before + created)
    redis.call('HSET', jobs, id, order .. string.format('%.0f\n%.0f\n', due, now) .. ARGV[i + 2])
    redis.call('ZADD', bucket, due, order .. id)
    if not earliest or due < earliest then earliest = due end
  end
end
if created < count then redis.call('HINCRBY', counts, 'enqueued', created - count) end
if earliest and (not head or earliest < head) then ring(wake, earliest) end
return reply
