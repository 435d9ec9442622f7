-- retry: running -> delayed, a batch of one group's failed or snoozed attempts. Each delay counts from now.
-- keys: ready, jobs, bucket, progress, counts, settings, history, taken, taken_until, wake, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start, failures
-- keys of the group: own
-- keys, if given: receipts
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] history cap
-- ARGV[4] generation of the group, as claim returned it
-- ARGV[5] consumer that claimed them
-- ARGV[6] how many failures are kept, 0 = none
-- ARGV[7] for how long, in ms; 0 = no limit
-- ARGV[8..] per claim: main, entry (as claimed), id, history row, delay_ms, steps to advance (-1: snoozed, so the
-- attempt does not count), error, failure ('' = none to keep)
-- returns {now_ms, i, ...}: i (from 1) are the refused claims; -i: it was aborted, and its job is cancelled.
-- flags: allow-oom
-- include: clock, end_in_group, failures, fence, groups, history, key_limit, notify_mover, progress, receipt,
--   removal, results, sequence, stored_format
local now, group = now_ms(ARGV[1]), ARGV[2]
local topic = redis.call('HMGET', settings, 'groups', 'generation:' .. group, 'format', 'key_limit',
  'key_order', 'after_finish', 'results', 'linked')
check_format(topic[3])
local s = shard(KEYS)
s.now, s.group, s.consumer = now, group, ARGV[5]
s.history_cap, s.key_limit, s.groups = ARGV[3], topic[4], served(topic[1], group, topic[2], ARGV[4])
if not s.groups then return refused(now, ARGV, 8, 8) end
s.on_removed = after_removal(s, topic[6], topic[8])
s.results = results_in(topic[7])
local now_text, reply, rows, texts = '\31' .. string.format('%.0f', now), {now}, {}, {}

-- The job no longer holds its key, unless retries do so in this topic, or it has no limit any more.
-- Returns the key for which the job is to wait anew; nil = none.
local holds = not topic[4] or topic[5] == 'hold'
local function release_for_retry(id)
  local group_key = drop_ticket(s, group, id)
  if not group_key then return nil end
  if topic[4] ~= '0' then return string.match(group_key, '\31(.*)$') end
  admit_next(s, group_key)
end

local lost, earliest, retried, snoozed, put_back = fence(s, ARGV, 8, 8), nil, 0, 0, 0
-- After the fence, because a Redis at its memory limit refuses a script whose first write adds data.
local sequence, head = reserve(counts, (#ARGV - 7) / 8), head_ms(bucket)
for i = 8, #ARGV, 8 do
  if lost and lost[i] then
    reply[#reply + 1] = lost[i] * i / 8
  else
    sequence, retried = sequence + 1, retried + 1
    local main, entry, id, due = ARGV[i], ARGV[i + 1], ARGV[i + 2], now + tonumber(ARGV[i + 4])
    local p = parse(redis.call('HGET', progress, field_of(group, id)))
    if entry == '' then p.main = detach(s, main) else redis.call('XDEL', own, entry) end
    if ARGV[i + 5] == '-1' then
      p.attempt, p.snoozed, snoozed = p.attempt - 1, (tonumber(p.snoozed) or 0) + 1, snoozed + 1
    else
      p.step = p.step + ARGV[i + 5]
    end
    p.state, p.crashes, p.sequence = 'w', 0, later_order(sequence)
    p.entry, p.started, p.deadline, p.note = '', '', string.format('%.0f', due), ARGV[i + 6]
    redis.call('HSET', progress, field_of(group, id), format(p))
    local key = not holds and release_for_retry(id)
    if key then
      enqueue_key(s, group, key, {id = id, sequence = p.sequence, due = due})
    else
      redis.call('ZADD', bucket, due, member(p.sequence, group, id))
      put_back = put_back + 1
    end
    if not earliest or due < earliest then earliest = due end
    rows[#rows + 1] = ARGV[i + 3] .. now_text
    texts[#rows] = ARGV[i + 7]
    if receipts then receipt(s, main, entry, ARGV[i + 5] == '-1' and 'snoozed' or 'retry') end
  end
end
if retried > 0 then
  redis.call('HINCRBY', counts, 'running:' .. group, -retried)
  if put_back > 0 then redis.call('HINCRBY', counts, 'waiting:' .. group, put_back) end
  if snoozed < retried then redis.call('HINCRBY', counts, 'retried:' .. group, retried - snoozed) end
  if snoozed > 0 then redis.call('HINCRBY', counts, 'snoozed:' .. group, snoozed) end
  if not head or earliest < head then notify_mover(wake, earliest) end
end
keep_failures(failures, remember(s, rows), texts, {count = ARGV[6], age = ARGV[7]})
return reply
