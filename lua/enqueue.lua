-- enqueue: nothing -> delayed, or -> ready if the job is due already and no earlier job waits.
-- keys: jobs, bucket, ready, counts, settings, wake
-- keys, if given: progress, key_tickets, key_waiting, key_admitted, key_unstarted, key_counts, key_paused,
--   key_next_start
-- ARGV[1] now_ms or ''
-- ARGV[2] the topic's number of shards, as lib/is_current.lua takes it
-- ARGV[3] most bytes of records to return
-- ARGV[4..] per job: id, when ('+delay_ms', or due_ms), rest of the record
-- returns {status, now_ms, looked, i, record_i, ...}: status 0 = the caller's settings of the topic are out of date,
-- nothing was written; 1 = done; 2 = done, and those of the new jobs that are due are ready; 3 = as 2, except for those
-- with a key. looked: how many of the jobs were enqueued or had a taken id, at least one; the rest is
-- left for another call. i (from 1) are the jobs whose id was taken, each with the record that has it.
-- include: clock, groups, is_current, key_limit, key_tickets, largest, notify_mover, results, sequence, stored_format
local now, shards, most_bytes = now_ms(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local topic = redis.call('HMGET', settings, 'shards', 'paused', 'rate', 'groups', 'watch_until', 'largest', 'format',
  'key_limit', 'sharded_by_key', 'results')
check_format(topic[7])
if not is_current(topic[1], topic[9], shards) then return {0, now, 0} end

local limited = topic[8] and topic[8] ~= '0'
local s = (limited or topic[10]) and shard(KEYS)
if limited then
  s.now, s.key_limit = now, topic[8]
end
if topic[10] then s.results = results_in(topic[10]) end
local head = head_ms(bucket)
local skips_bucket = topic[2] == '0' and topic[3] == '0' and not (head and head <= now)
local count = (#ARGV - 3) / 3
-- Written even if all ids turn out to be taken: WAIT behind a repeated call must cover the write of the first one.
-- Numbers as texts where they are at hand: to write one costs Redis about as much as a small command.
local before = redis.call('HINCRBY', counts, 'enqueued', count == 1 and '1' or count) - count
local status = not skips_bucket and 1 or limited and 3 or 2
local reply, waiting, earliest, created, moved, bytes, longest = {status, now, count}, {}, nil, 0, 0, 0, 0
local prefix = '\n' .. now .. '\n' -- 13 digits: Lua writes up to 14 in full

for i = 4, #ARGV, 3 do
  local id, when = ARGV[i], ARGV[i + 1]
  local order, due = first_order(before + created + 1), tonumber(when)
  if string.byte(when) == 43 then due = now + due end
  local due_text = string.format('%.0f', due)
  local record = order .. due_text .. prefix .. ARGV[i + 2]
  if redis.call('HSETNX', jobs, id, record) == 0 then
    local held = redis.call('HGET', jobs, id)
    reply[#reply + 1] = (i - 1) / 3
    reply[#reply + 1] = held
    bytes = bytes + #held
    if bytes >= most_bytes then
      reply[3] = (i - 1) / 3
      break
    end
  else
    created = created + 1
    if topic[10] then forget_results(s, id) end
    if #record > longest then longest = #record end
    local key = limited and key_in(ARGV[i + 2], 1)
    if key then
      if add(s, names(topic[4]), key, {id = id, sequence = order, due = due}) then
        reply[3] = (i - 1) / 3
        break
      end
    elseif skips_bucket and due <= now then
      redis.call('XADD', ready, '*', 'j', order .. id)
      moved = moved + 1
    else
      waiting[#waiting + 1] = due_text
      waiting[#waiting + 1] = order .. id
      if not earliest or due < earliest then earliest = due end
    end
  end
end

note_largest(settings, topic[6], longest)
if created < count then redis.call('HINCRBY', counts, 'enqueued', created - count) end
if moved > 0 then
  local first = false
  for group in string.gmatch(topic[4], '[^,]+') do
    first = redis.call('HINCRBY', counts, 'ready:' .. group, moved) == moved or first
  end
  -- As in claim: a consumer may die after it has read the job and before it claims it.
  if first and not is_watched(topic[5], now) then notify_mover(wake, now) end
end
if earliest then
  redis.call('ZADD', bucket, unpack(waiting))
  if not head or earliest < head then notify_mover(wake, earliest) end
end
return reply
