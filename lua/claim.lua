-- claim: ready -> running, for one consumer of one group. Reads the streams, loads the records and drops what is out
-- of date (cancelled, rescheduled, replaced, expired) in one round trip.
-- KEYS[1] ready        STREAM
-- KEYS[2] ready:GROUP  STREAM  the group's own retries and kicked jobs
-- KEYS[3] jobs         HASH
-- KEYS[4] progress     HASH
-- KEYS[5] counts       HASH
-- KEYS[6] settings     HASH
-- KEYS[7] wake         STREAM
-- KEYS[8] history      STREAM
-- KEYS[9] bucket       ZSET
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] consumer
-- ARGV[4] count: how many entries to read at most, besides those of ARGV[7..]
-- ARGV[5] default TTR in ms, where the topic sets none
-- ARGV[6] history cap
-- ARGV[7..] entries that a blocking XREADGROUP returned already: stream ('m' ready, 'g' ready:GROUP), entry, member
-- returns {status, now_ms, ttr_ms, unread, {main, entry, id, record, past, ...}, expired}: status 1, or 0 = the
-- topic is paused (nothing read). main: entry in the shared stream or '-'. entry: '' when it is the same as main.
-- past: '' for a first attempt, else 'attempt|step|crashes|due_ms' ('' as the record says).
-- unread: what is still ready for this group. expired: how many were given up, as they would have started too late.
-- include: clock, read, progress, ring, settle, requeue, history
local ready, own, jobs, progress, counts, settings, wake, history, bucket = unpack(KEYS)
local now, group, consumer, count, cap = now_ms(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[6]
local k = {ready = ready, own = own, jobs = jobs, progress = progress, counts = counts, bucket = bucket}

local topic = redis.call('HMGET', settings, 'paused', 'ttr:' .. group, 'ttr', 'watch_until', 'groups')
local paused, groups = topic[1] == '1', names(topic[5])
local group_ttr = tonumber(topic[2] or topic[3] or ARGV[5])

-- entries = {stream, entry, member, ...}
local entries, n = {}, 0
for i = 7, #ARGV, 3 do
  local stream = ARGV[i] == 'm' and ready or own
  -- A consumer that slept between its read and this call has lost the entry: it was handed over, under another id.
  if #redis.call('XPENDING', stream, group, ARGV[i + 1], ARGV[i + 1], 1, consumer) == 1 then
    entries[n + 1], entries[n + 2], entries[n + 3] = stream, ARGV[i + 1], ARGV[i + 2]
    n = n + 3
  end
end
local function read(stream, most)
  for _, entry in ipairs(new_entries(stream, group, consumer, paused and 0 or most)) do
    entries[n + 1], entries[n + 2], entries[n + 3] = stream, entry[1], entry[2][2]
    n = n + 3
  end
end
local given = n
read(own, count)
read(ready, count - (n - given) / 3)
if n == 0 then return {paused and 0 or 1, now, group_ttr, 0, {}, 0} end

local ids, fields = {}, {}
for i = 3, n, 3 do
  local id = string.sub(entries[i], 13)
  if string.byte(id) == 31 then id = string.match(id, '^\31[^\31]*\31(.*)$') end
  ids[#ids + 1], fields[#fields + 1] = id, field_of(group, id)
end
local records = redis.call('HMGET', jobs, unpack(ids))
local states = redis.call('HMGET', progress, unpack(fields))

local out, marks, gone, taken, left = {}, {}, {}, 0, 0
local now_text = string.format('%.0f', now)

local function drop(stream, entry, remove)
  redis.call('XACK', stream, group, entry)
  if remove then redis.call('XDEL', stream, entry) end
end

local function give_back(stream, entry, id, p, at)
  if stream == ready then
    redis.call('XACK', ready, group, entry)
    p.main = detach(k, groups, p.main)
  else
    drop(own, entry, true)
  end
  requeue(k, group, id, p, at, paused or at > now)
  if not paused and at > now then ring(wake, at) end
end

local function expire(stream, entry, id, record, p, due)
  drop(stream, entry, stream ~= ready)
  redis.call('HINCRBY', counts, 'expired:' .. group, 1)
  gone[#gone + 1] = rare_row('expired', id, group, p, record, now,
    {consumer = consumer, due = due, moved = string.match(entry, '^%d+')})
  settle(k, groups, group, id, p and p.main or entry)
end

local function tail_of(ttr) return '|' .. now_text .. '|' .. string.format('%.0f', now + ttr) .. '|' .. consumer end
local group_tail = tail_of(group_ttr)

local function start(i, main, entry, sequence, counted, past, tail)
  local m, o = taken * 2, taken * 5
  taken = taken + 1
  marks[m + 1], marks[m + 2] = fields[i], 'r|' .. counted .. '|' .. main .. '|' .. sequence .. '|' .. entry .. tail
  out[o + 1], out[o + 2], out[o + 3], out[o + 4], out[o + 5] = main, entry, ids[i], records[i], past
end

-- A job that is not simply a first attempt: with progress, or options of its own.
local function consider(i, stream, entry, sequence, p)
  local id, record, shared = ids[i], records[i], stream == ready
  local due, ttr, expiry = string.match(record, '^(%d+)\n%d+\n(%d*)\n(%d*)\n', 13)
  if p and p.deadline ~= '' then due = p.deadline end
  local early = now < tonumber(due) -- rescheduled before this group was added
  if paused or early then
    left = left + 1
    give_back(stream, entry, id, p or fresh(sequence, entry), early and tonumber(due) or now)
  elseif expiry ~= '' and now > due + expiry then
    left = left + 1
    expire(stream, entry, id, record, p, due)
  else
    local main, counted, past, tail = entry, '1|0|0', '', group_tail
    if p then
      main, counted = p.main, (p.attempt + 1) .. '|' .. p.step .. '|' .. p.crashes
      past = counted .. '|' .. p.deadline
    end
    if ttr ~= '' then
      tail = tail_of(tonumber(ttr))
      -- reclaim looks at what has been idle for the group's TTR: a shorter one begins with a part of that behind it.
      if tonumber(ttr) < group_ttr then
        redis.call('XCLAIM', stream, group, consumer, 0, entry, 'IDLE', group_ttr - ttr, 'JUSTID')
      end
    end
    start(i, main, shared and '' or entry, sequence, counted, past, tail)
  end
end

for i = 1, #ids do
  local stream, entry, sequence = entries[i * 3 - 2], entries[i * 3 - 1], string.sub(entries[i * 3], 1, 12)
  local record, state, shared = records[i], states[i], stream == ready
  local same = record and string.sub(record, 1, 12) == sequence
  local p = state and parse(state)
  if shared and same and not state and not paused and string.sub(record, 40, 42) == '\n\n\n'
      and string.sub(record, 13, 25) <= now_text then
    start(i, entry, '', sequence, '1|0|0', '', group_tail) -- nearly all: no TTR or expiry of its own, and due
  elseif not record then
    drop(stream, entry, true)
    if p and p.state == 'w' then redis.call('HDEL', progress, fields[i]) end -- of a lost job: reclaim counts it
  elseif p and p.state == 'r' and (p.entry == '' and p.main or p.entry) == entry then
    -- The group was made anew and reads its past again. What it still ran gets a new entry: the old claim is refused.
    redis.call('HINCRBY', counts, 'running:' .. group, -1)
    give_back(stream, entry, ids[i], p, now)
  elseif shared and p then
    drop(stream, entry, not same)
  elseif shared and same or not shared and p and p.state == 'w' and p.sequence == sequence then
    consider(i, stream, entry, sequence, p)
  else
    drop(stream, entry, true)
  end
end
remember(history, counts, settings, cap, gone)
-- 0 first: Lua writes the negative of 0 as '-0', which Redis does not take for a number.
local unread = redis.call('HINCRBY', counts, 'ready:' .. group, 0 - taken - left)
if taken > 0 then
  redis.call('HSET', progress, unpack(marks))
  local running = redis.call('HINCRBY', counts, 'running:' .. group, taken)
  -- The first claim after a quiet time: the mover must begin to watch its TTR.
  if running == taken and tonumber(topic[4] or 0) < now then ring(wake, now + group_ttr) end
end
return {paused and 0 or 1, now, group_ttr, unread, out, #gone}
