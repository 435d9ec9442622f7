-- relay: nothing -> delayed, jobs from a database's outbox. Each leaves a receipt, in the same step, which stays until the
-- database needs it no more. Idempotent by the receipts, even when the job has ended.
-- keys: jobs, bucket, ready, progress, counts, settings, history, wake, key_tickets, key_waiting, key_admitted,
--   key_unstarted, key_counts, key_paused, key_next_start, outbox, taken, taken_until
-- ARGV[1] now_ms or ''
-- ARGV[2] how jobs are spread, as lib/is_current.lua takes it
-- ARGV[3] version of the topic before the caller read its rows: in a topic that was deleted and made again since, neither
-- receipts nor the epoch would tell that another relay was there
-- ARGV[4] history cap
-- ARGV[5] most bytes of records to read
-- ARGV[6] outbox
-- ARGV[7] epoch of the relay
-- ARGV[8] 'former' = the ids were at home here before the number of shards changed, and stay as long as there is anything
-- of them; ''
-- ARGV[9..] per job: id, when ('+delay_ms', or due_ms), rest of the record, receipt, '1' = replaces a waiting job
-- returns {status, code, ...}: status 1 = done, 0 = the caller's settings of the topic are out of date, nothing was
-- written. code of each job that was looked at, at least one: 1 = enqueued now, 2 = by an earlier call, 0 = another job
-- has the id, 3 = there is nothing of a former id here. {-1, epoch}: the fence; a relay with this higher
-- epoch has been here, nothing was written.
-- include: clock, drop_job, groups, is_current, key_limit, key_tickets, largest, notify_mover, removal, results,
--   sequence, stored_format
local now, most_bytes, fence, epoch = now_ms(ARGV[1]), tonumber(ARGV[5]), 'relay:' .. ARGV[6], tonumber(ARGV[7])
local topic = redis.call('HMGET', settings, 'shards', 'groups', 'largest', 'leaving', 'format', 'version', fence,
  'after_finish', 'key_limit', 'sharded_by_key', 'results', 'linked')
check_format(topic[5])
if not is_current(topic[1], topic[10], ARGV[2]) or topic[6] ~= ARGV[3] then return {0} end
local last = tonumber(topic[7] or 0)
if last > epoch then return {-1, last} end
if last < epoch then redis.call('HSET', settings, fence, ARGV[7]) end

local NONCE = '[^\n]*\n[^\n]*\n([^\n]*)\n' -- after ttr and expire
local function is_same(held, rest)
  return string.match(held, '^[^\n]*\n[^\n]*\n' .. NONCE) == string.match(rest, NONCE)
end

local s = shard(KEYS)
s.now, s.history_cap, s.groups, s.leaving = now, ARGV[4], names(topic[2]), topic[4]
s.ended_as, s.on_removed = 'replaced', after_removal(s, topic[8], topic[12])
s.key_limit, s.results = topic[9], results_in(topic[11])
local limited = topic[9] and topic[9] ~= '0'
local head, count, former = head_ms(bucket), (#ARGV - 8) / 5, ARGV[8] == 'former'
local before = redis.call('HINCRBY', counts, 'enqueued', count) - count
local reply, created, earliest, bytes, longest = {1}, 0, nil, 0, 0

for i = 9, #ARGV, 5 do
  local id, when, rest, receipt, code = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], 1
  if redis.call('HEXISTS', outbox, receipt) == 1 then
    code = 2
  else
    local held, due = redis.call('HGET', jobs, id), tonumber(when)
    if string.byte(when) == 43 then due = now + due end
    if former and not held and redis.call('HEXISTS', taken, id) == 0 then
      code = 3
    elseif held and is_same(held, rest) then
      code = 2
    elseif held and (ARGV[i + 4] ~= '1' or drop_job(s, {id = id, record = held}, nil) ~= 1) then
      code = 0
    else
      created = created + 1
      forget_results(s, id)
      local order = first_order(before + created)
      local record = order .. string.format('%.0f\n%.0f\n', due, now) .. rest
      redis.call('HSET', jobs, id, record)
      longest = math.max(longest, #record)
      local key = limited and key_in(rest, 1)
      if not key then
        redis.call('ZADD', bucket, due, order .. id)
        if not earliest or due < earliest then earliest = due end
      elseif add(s, s.groups, key, {id = id, sequence = order, due = due}) then
        bytes = most_bytes
      end
    end
    if code == 1 or code == 2 then redis.call('HSET', outbox, receipt, 1) end
    if held then bytes = bytes + #held end
  end
  reply[#reply + 1] = code
  if bytes >= most_bytes then break end
end
note_largest(settings, topic[3], longest)
if former and created > 0 then redis.call('HINCRBY', settings, 'former_puts', 1) end
if created < count then redis.call('HINCRBY', counts, 'enqueued', created - count) end
if earliest and (not head or earliest < head) then notify_mover(wake, earliest) end
return reply
