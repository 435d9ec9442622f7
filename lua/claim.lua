-- claim: ready -> running, for one consumer of one group. Reads the streams, loads the records and drops entries that
-- are out of date (cancelled, rescheduled, replaced, expired) in one round trip.
-- KEYS[1] ready        STREAM
-- KEYS[2] ready:GROUP  STREAM  the group's own retries and kicked jobs
-- KEYS[3] jobs         HASH
-- KEYS[4] progress     HASH
-- KEYS[5] counts       HASH
-- KEYS[6] settings     HASH
-- KEYS[7] wake         STREAM
-- KEYS[8] history      STREAM
-- KEYS[9] bucket       ZSET
-- KEYS[10] taken       HASH
-- KEYS[11] taken_until  ZSET
-- KEYS[12] lanes  ZSET
-- KEYS[13] fronts  ZSET
-- KEYS[14] keyed  HASH
-- KEYS[15] crowds  ZSET
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] consumer
-- ARGV[4] count: how many to claim at most; entries in ARGV[8..] beyond that are handed back
-- ARGV[5] default TTR in ms, if the topic sets none
-- ARGV[6] history cap
-- ARGV[7] at_once: how many of them the caller starts at once; the others are claimed ahead (progress.lua). A job that
-- was lost with a consumer is not claimed ahead: it may be what kills consumers, and that must be counted. In a topic with
-- a pace of keys, no job that has progress is: its claim is taken for its start.
-- ARGV[8..] entries that a blocking XREADGROUP returned already: stream ('m' ready, 'g' ready:GROUP), entry, member;
-- those that it has claimed, but got no reply, it claims again
-- returns {status, now_ms, ttr_ms, unread, {claim, ...}, {id, ...}, {record, ...}, expired, generation, refused,
-- unlooked}: status 1, or 0 = the topic is paused (nothing read); or {-1}: there is no such group. claim: '' = none, the
-- delivery was out of date; for a first attempt the entry in the shared stream; otherwise
-- 'main|entry|attempt|step|crashes|due_ms'. main: entry in the shared stream or '-'. attempt: as in the progress.
-- due_ms: '' = see the record. unread: jobs still ready for this group. expired: how many were given up as too late.
-- generation: of the group. refused: jobs beyond at_once that are not claimed ahead. unlooked: how many of the last entries
-- in ARGV[8..] were left for another call, because records are large, or the topic has a pace of keys.
-- include: clock, stream_groups, read, progress, ring, settle, lanes, requeue, history, return_unclaimed, start_attempt, stored_format, taken
local ready, own, jobs, progress, counts, settings, wake, history, bucket, taken, taken_until, lanes, fronts, keyed, crowds = unpack(KEYS)
local now, group, consumer, cap = now_ms(ARGV[1]), ARGV[2], ARGV[3], ARGV[6]
local k = {ready = ready, own = own, jobs = jobs, progress = progress, counts = counts, bucket = bucket, wake = wake,
  group = group, consumer = consumer, now = now, lanes = lanes, fronts = fronts, keyed = keyed, crowds = crowds}

local topic = redis.call('HMGET', settings, 'paused', 'ttr:' .. group, 'ttr', 'watch_until', 'groups', 'rate',
  'generation:' .. group, 'largest', 'format', 'after_finish', 'key_limit')
check_format(topic[9])
local paused, groups, generation = topic[1] == '1', names(topic[5]), topic[7] or '0'
if not has(groups, group) then return {-1} end
k.waits, k.key_limit, k.paced = waits(topic[1], topic[6]), topic[11], string.find(topic[11] or '', '/')
local most = k.paced and math.min(tonumber(ARGV[4]), PACED_AT_ONCE) or tonumber(ARGV[4])
local count = paused and 0 or most
local group_ttr, at_once = tonumber(topic[2] or topic[3] or ARGV[5]), math.min(count, tonumber(ARGV[7]))
local given, unlooked = {[own] = {}, [ready] = {}}, 0
local budget = budget_of(jobs, topic[8], count + #ARGV / 3)
for i = 8, #ARGV, 3 do
  local stream, entry = ARGV[i] == 'm' and ready or own, {ARGV[i + 1], {'j', ARGV[i + 2]}}
  -- A consumer that was stopped between its read and this call has lost the entry: it was handed over with another id.
  if unlooked > 0 or k.paced and i >= 8 + 3 * PACED_AT_ONCE or not fits(budget, length_of(budget, entry)) then
    unlooked = unlooked + 1
  elseif is_held(stream, group, consumer, entry) then
    table.insert(given[stream], entry)
  end
end
-- If nothing is read besides, this is the first write. A full Redis lets a script continue if that needs no memory.
if #ARGV > 7 then redis.call('HDEL', progress, '') end
local entries, again = both_streams(budget, k, group, consumer, given, unlooked > 0 and 0 or count, now)
local n = #entries
if n == 0 then return {paused and 0 or 1, now, group_ttr, 0, {}, {}, {}, 0, generation, 0, 0} end
local ids, fields, prefix = {}, {}, field_of(group, '')
for i = 1, n do
  local delivery = entries[i][2][2]
  local id = i > again and string.sub(delivery, 13) or string.match(delivery, '^\31[^\31]*\31(.*)$', 13) or ''
  ids[i], fields[i] = id, prefix .. id -- '': another client put the entry there; no job has this id
end
local records, states = redis.call('HMGET', jobs, unpack(ids)), redis.call('HMGET', progress, unpack(fields))

k.holds_back = k.key_limit and redis.call('ZCOUNT', crowds, -1, -1) > 0
k.groups, k.ttr, k.count, k.at_once = groups, group_ttr, count, at_once
k.now_text, k.left, k.refused, k.late, k.mains, k.expired = string.format('%.0f', now), 0, 0, {}, {}, {}
local claims, marks, started, now_text, tail = {}, {}, 0, k.now_text, tail_of(k, group_ttr, at_once == 0)

for i = 1, n do
  local shared, entry, record, state = i > again, entries[i][1], records[i], states[i]
  local stream, sequence = shared and ready or own, string.sub(entries[i][2][2], 1, 12)
  local same = record and string.find(record, sequence, 1, true) == 1
  local p, claim, mark = parse(state), nil, nil
  local running = p and p.state == 'r' and (p.entry == '' and p.main or p.entry) == entry
  if shared and same and not p and started < count and string.find(record, '\n\n\n', 40, true) == 40
      and string.sub(record, 13, 25) <= now_text then -- nearly always: no TTR or expiry of its own, and due
    claim, mark = entry, 'r|1|0|0|' .. entry .. '|' .. sequence .. '|' .. tail
  elseif not record then
    -- The job is lost; reclaim counts it, by the entry if it was running.
    if not running then drop_entry(stream, group, entry, true) end
    if p and p.state == 'w' then lose(k, group, ids[i], now) end
  elseif running then
    redis.call('HINCRBY', counts, 'running:' .. group, -1)
    if p.note == consumer and entries[i].asked then
      -- It claimed what it had read, and asks again: it got no reply. The answer is the same, and no attempt is lost.
      redis.call('HINCRBY', counts, 'ready:' .. group, 1)
      claim, mark = start_attempt(k, stream, entry, ids[i], record, sequence, unclaimed(p), started, tail)
    else
      -- The group was created again, and this entry was read again after it had been claimed. The job gets a new entry,
      -- so that the old claim is refused.
      p.note = ''
      return_unclaimed(k, groups, stream, group, entry, ids[i], p, p.due, now)
    end
  elseif shared and p then
    drop_entry(stream, group, entry, not same)
  elseif shared and same or p and p.state == 'w' and p.sequence == sequence then
    claim, mark = start_attempt(k, stream, entry, ids[i], record, sequence, p, started, tail)
  else
    drop_entry(stream, group, entry, true)
  end
  if claim then
    claims[i], marks[started * 2 + 1], marks[started * 2 + 2] = claim, fields[i], mark
    started = started + 1
    if started == at_once and started < count then tail = tail_of(k, group_ttr, true) end -- claimed ahead from now on
  end
end
k.gone = leaving_pool(topic[10], taken, taken_until, now)
settle(k, groups, group, k.late, k.mains)
remember(history, counts, settings, cap, k.expired)
-- 0 comes first: Lua writes -0 as '-0', which Redis does not accept as a number.
local unread = redis.call('HINCRBY', counts, 'ready:' .. group, 0 - started - k.left)
if started > 0 then
  redis.call('HSET', progress, unpack(marks))
  local running = redis.call('HINCRBY', counts, 'running:' .. group, started)
  -- The first claim after a quiet time: the mover must start to watch its TTR.
  if running == started and not is_watched(topic[4], now) then ring(wake, now + group_ttr) end
end
for i = 1, started < n and n or 0 do claims[i] = claims[i] or '' end
return {paused and 0 or 1, now, group_ttr, unread, claims, ids, records, #k.expired, generation, k.refused, unlooked}
