-- enqueue_unique: like enqueue and replace, for jobs whose ids are taken for a time (unique_for), may be used only so
-- often (rate_of_id), or whose waiting job is postponed: nothing, delayed or ready -> delayed.
-- keys: jobs, bucket, ready, progress, counts, settings, history, wake, key_tickets, key_waiting, key_admitted,
--   key_unstarted, key_counts, key_paused, key_next_start, taken, taken_until
-- ARGV[1] now_ms or ''
-- ARGV[2] how jobs are spread, as lib/is_current.lua takes it
-- ARGV[3] history cap
-- ARGV[4] most bytes of records to read
-- ARGV[5] if a job has the id: 'keep' it; or, if it waits, 'replace' or 'postpone' it
-- ARGV[6] 'former' = the ids were at home here before the number of shards changed, and stay as long as there is anything
-- of them; ''
-- ARGV[7..] per job: id, when ('+delay_ms', or due_ms), rest of the record, rule (rule_in); '' = none, as for enqueue and
-- replace
-- returns {status, now_ms, looked, i, record_i, ...} as enqueue does; i are the jobs that were not enqueued: another one
-- has the id, or had it; or that are there already, as they were postponed or the call is repeated. record_i: the job
-- that has the id. If it has ended, body `null` in its record, and the sequence is until when (ms, hexadecimal) the id
-- is taken. record_i '' = there is nothing of a former id here, and there never will be.
-- include: clock, drop_job, groups, is_current, key_limit, key_tickets, largest, notify_mover, postpone, removal,
--   results, sequence, stored_format, taken, taking
local now, most_bytes, how, former = now_ms(ARGV[1]), tonumber(ARGV[4]), ARGV[5], ARGV[6] == 'former'
local topic = redis.call('HMGET', settings, 'shards', 'groups', 'largest', 'leaving', 'format', 'after_finish', 'key_limit',
  'sharded_by_key', 'results', 'linked')
check_format(topic[5])
if not is_current(topic[1], topic[8], ARGV[2]) then return {0, now, 0} end
local s = shard(KEYS)
s.now, s.history_cap, s.groups, s.leaving, s.key_limit = now, ARGV[3], names(topic[2]), topic[4], topic[7]
s.ended_as, s.results, s.linked = 'replaced', results_in(topic[9]), topic[10]
local is_limited = topic[7] and topic[7] ~= '0'
local head, count = head_ms(bucket), (#ARGV - 6) / 4
local before = redis.call('HINCRBY', counts, 'enqueued', count) - count -- always written, as in enqueue
local reply, created, earliest, bytes, longest, is_noted = {1, now, count}, 0, nil, 0, 0, false

-- The job that has the id waits longer, if it can. new = {id=, due=, rest=, rule=, nonce=}. Returns its record.
local function put_off(new, record, t)
  local was_due, made, its_nonce = string.match(record, '^(%d+)\n(%d+)\n[^\n]*\n[^\n]*\n([^\n]*)\n', 13)
  local known = t and t.latest > 0 and t.nonce == its_nonce
  local latest = known and t.latest or new.rule.at_most and was_due + new.rule.at_most
  local due = latest and math.min(new.due, latest) or new.due
  local now_stored, now_due = postpone(s, {id = new.id, record = record}, due, new.rest)
  if not now_stored then return record end
  longest, earliest = math.max(longest, #now_stored), math.min(earliest or now_due, now_due)
  if t or latest then
    t = t or {over = 0, until_ms = 0, times = {}}
    t.nonce, t.created, t.due, t.latest = new.nonce, tonumber(made), now_due, latest or 0
    t.over = math.max(t.over, t.latest)
    keep_taken(s, new.id, t)
    is_noted = true
  end
  return now_stored
end

-- returns the record of the job that keeps the id; nil = the new job gets it
local function holder(new, record, t)
  local free = t and free_ms(t, new.rule) or 0
  if record then
    if string.sub(record, -#new.rest) == new.rest then return record end -- with the same nonce: the call is repeated
    if how == 'postpone' then return put_off(new, record, t) end
    s.on_removed = after_removal(s, not new.rule.is_given and topic[6], topic[10]) -- with a rule, take_id does it
    local is_replaced = how == 'replace' and free <= now and drop_job(s, {id = new.id, record = record}, nil) == 1
    return not is_replaced and record or nil
  end
  local until_ms = t and new.rule.is_given and math.max(t.until_ms, free) or 0
  if until_ms <= now and not (t and t.nonce == new.nonce) then return nil end
  return string.format('%012x%.0f\n%.0f\n\n\n%s\n\n\nnull', until_ms, t.due, t.created, t.nonce)
end

for i = 7, #ARGV, 4 do
  local id, when, rest, rule = ARGV[i], ARGV[i + 1], ARGV[i + 2], rule_in(ARGV[i + 3])
  local record, due = redis.call('HGET', jobs, id), tonumber(when)
  local t = taken_of(s, id, record)
  if string.byte(when) == 43 then due = now + due end
  local new = {id = id, due = due, rest = rest, rule = rule, nonce = string.match(rest, '^[^\n]*\n[^\n]*\n([^\n]*)\n')}
  local held
  if former and not record and not t then
    forget_taken(s, id) -- or an id that is used again and again would stay here
    held = ''
  else
    held = holder(new, record, t)
  end
  if held then
    reply[#reply + 1] = (i - 3) / 4
    reply[#reply + 1] = held
  else
    created = created + 1
    forget_results(s, id)
    local order = first_order(before + created)
    local stored = order .. string.format('%.0f\n%.0f\n', due, now) .. rest
    redis.call('HSET', jobs, id, stored)
    longest = math.max(longest, #stored)
    local key = is_limited and key_in(rest, 1)
    if not key then redis.call('ZADD', bucket, due, order .. id)
    else add(s, s.groups, key, {id = id, sequence = order, due = due}) end
    if rule.is_given then take_id(s, id, t, new) end
    -- In a topic of one shard nobody else marks it, and when the job has ended, nothing tells that its id belonged to a key.
    if not topic[8] and rule.is_given and key_in(rest, 1) then
      topic[8] = redis.call('HSET', settings, 'sharded_by_key', 1)
    end
    if rule.after and not topic[6] then topic[6] = redis.call('HSET', settings, 'after_finish', 1) end
    if not key and (not earliest or due < earliest) then earliest = due end
  end
  if record then bytes = bytes + #record end
  if bytes >= most_bytes or has_added_enough(s) then
    reply[3] = (i - 3) / 4
    break
  end
end
trim_taken(s, 2 * count + 10)
note_largest(settings, topic[3], longest)
if former and (created > 0 or is_noted) then redis.call('HINCRBY', settings, 'former_puts', 1) end
if created < count then redis.call('HINCRBY', counts, 'enqueued', created - count) end
if earliest and (not head or earliest < head) then notify_mover(wake, earliest) end
return reply
