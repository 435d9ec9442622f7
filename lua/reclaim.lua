-- reclaim: running -> ready, the claims of one group whose TTR has passed. Each counts as a crash (crash.lua). A job
-- that was lost twice in a row waits for a while, four TTRs or 10 s at most, so that it is not claimed together again
-- with the jobs that were lost with it.
-- keys: ready, jobs, bucket, progress, counts, settings, history, taken, taken_until, wake, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- keys of the group: own
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] history cap
-- ARGV[4] default TTR in ms, if the topic sets none
-- ARGV[5] limit per stream: checks ten times as many claims, takes over at most this many; fewer if records are large
-- ARGV[6] cursor in ready
-- ARGV[7] cursor in ready:GROUP
-- ARGV[8] watch_ms: for this long the caller checks the shard in any case, and nothing needs to wake the mover
-- ARGV[9] missing, as the caller's last check returned it; 0 at first
-- returns {now_ms, cursor, cursor of ready:GROUP, more, running, ready, reclaimed, {consumer, ...}, missing, lost}; more:
-- 1 = some claims were not checked. running = pending entries, including those that a consumer has read and not claimed
-- yet; if it died in between, it never will. missing: jobs that are ready by the counters and in no stream. lost: jobs
-- that were missing in the last check as well; they count as lost from now on, as do claims whose record is gone. The
-- consumers are those with pending entries.
-- flags: allow-oom
-- include: clock, crash, groups, hand_over, history, largest, missing_jobs, notify_mover, progress, recheck, removal,
--   requeue, results, stored_format
local now, group = now_ms(ARGV[1]), ARGV[2]
local s = shard(KEYS)
local topic = redis.call('HMGET', settings, 'ttr:' .. group, 'ttr', 'groups', 'paused', 'rate',
  'watch_until', 'recheck:' .. group, 'largest', 'format', 'key_limit', 'after_finish', 'results', 'linked')
check_format(topic[9])
local group_ttr = tonumber(topic[1] or topic[2] or ARGV[4])
s.now, s.group, s.history_cap = now, group, ARGV[3]
s.groups, s.waits, s.key_limit = names(topic[3]), waits(topic[4], topic[5]), topic[10]
s.on_removed = after_removal(s, topic[11], topic[13])
s.results = results_in(topic[12])
local losses = {apart_ms = apart_ms(group_ttr, now), lost = 0, bytes = 0, taken = 0, rows = {}}
losses.stays = function(p, is_running) return is_running and tonumber(p.deadline) > now end
losses.on_lost = function(job) count_crash(s, losses, job, 'not finished within its TTR by ') end
-- Further ahead than it is ever set: the clock was set back.
local set_back = topic[6] and tonumber(topic[6]) > now and not is_watched(topic[6], now)
if set_back then
  recheck_all(settings, s.groups)
  redis.call('HDEL', settings, 'watch_until')
end
local recheck = recheck_in(set_back and '0|0' or topic[7])
local more, limit = 0, tonumber(ARGV[5])

local function look_at(stream, entry, value)
  local job = hand_over(s, losses, {stream = stream, id = entry, member = value})
  local p = job and job.progress
  local started = p and math.abs(tonumber(p.started))
  if p and started > now then -- the clock was set back since: its TTR starts again
    p.started = string.format(is_ahead(p) and '-%.0f' or '%.0f', now)
    p.deadline = string.format('%.0f', now + p.deadline - started)
    redis.call('HSET', progress, field_of(group, job.id), format(p))
  end
  -- It has a longer TTR of its own, or was touched: give it back, so that it is checked again at its deadline.
  if p then
    redis.call('XCLAIM', stream, group, p.note, 0, entry, 'IDLE',
      math.max(0, group_ttr - (tonumber(p.deadline) - now)), 'JUSTID')
  end
end

local function sweep_some(stream, cursor, number, count)
  -- With an injected clock Redis's idle times mean nothing; only the deadline in the progress decides.
  local min_idle = ARGV[1] == '' and not (recheck and recheck[number] ~= '2') and group_ttr or 0
  local reply = redis.call('XAUTOCLAIM', stream, group, '_reclaim', min_idle, cursor, 'COUNT', count)
  local deleted = false
  for _, item in ipairs(reply[2]) do
    if item and item[2] then
      look_at(stream, item[1], item[2][2])
    else
      deleted = true -- Redis 6.2 returns no id for an entry that was deleted while pending, and keeps it pending
    end
  end
  if deleted then
    for _, row in ipairs(redis.call('XPENDING', stream, group, '-', '+', 100, '_reclaim')) do
      redis.call('XACK', stream, group, row[1])
    end
  end
  if recheck then recheck[number] = rechecked(recheck[number], cursor, reply[1]) end
  return reply[1]
end
local function sweep(stream, cursor, number)
  local left, is_complete = limit, false
  while left > 0 and not is_complete and (losses.bytes == 0 or losses.bytes + (topic[8] or 0) <= BYTES_AT_ONCE) do
    local count = fitting(topic[8], left, losses.bytes)
    cursor, left = sweep_some(stream, cursor, number, count), left - count
    is_complete = cursor == '0-0'
  end
  if not is_complete then more = 1 end
  return cursor
end

local cursor, own_cursor = sweep(ready, ARGV[6], 1), sweep(own, ARGV[7], 2)
if recheck and not note_recheck(settings, group, recheck) then more = 1 end
if losses.taken > 0 then redis.call('HINCRBY', counts, 'reclaimed:' .. group, losses.taken) end
remember(s, losses.rows)
local running, consumers, known = 0, {}, {_reclaim = true}
for _, stream in ipairs({ready, own}) do
  local pending = redis.call('XPENDING', stream, group)
  running = running + pending[1]
  for _, row in ipairs(pending[4] or {}) do
    if not known[row[1]] then known[row[1]], consumers[#consumers + 1] = true, row[1] end
  end
end
local missing = missing_jobs(s, group, running)
local lost = math.min(missing, tonumber(ARGV[9]))
if lost > 0 then
  redis.call('HINCRBY', counts, 'ready:' .. group, -lost)
  redis.call('HINCRBY', counts, 'lost:' .. group, lost)
end
if tonumber(ARGV[8]) > 0 then redis.call('HSET', settings, 'watch_until', string.format('%.0f', now + ARGV[8])) end
return {now, cursor, own_cursor, more, running, tonumber(redis.call('HGET', counts, 'ready:' .. group) or 0), losses.taken,
  consumers, missing - lost, lost + losses.lost}
