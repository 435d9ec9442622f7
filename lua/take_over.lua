-- take_over: running -> ready, the claims of a consumer that has sent no heartbeat for long enough, whatever their
-- TTR. Each counts as a crash (crash.lua). What the consumer claimed only a short while ago stays: it may have been idle
-- until then, and its first heartbeat may be on its way. A job that was lost before stays twice as long each time, and
-- one that would be buried if it was lost once more is left to its TTR: perhaps the job itself keeps its consumers from
-- sending heartbeats, and they live. What it only read goes at once, as that counts as nothing: Redis may
-- have given the entry to the blocked read of a consumer that stands still, while others wait for it.
-- keys: ready, jobs, bucket, progress, counts, settings, history, taken, taken_until, wake, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- keys of the group: own
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] history cap
-- ARGV[4] default TTR in ms, if the topic sets none
-- ARGV[5] consumer
-- ARGV[6] silent_ms: what was claimed less than this long ago stays
-- ARGV[7] limit per stream; fewer if records are large
-- ARGV[8] how often a job may be lost before it is buried
-- returns {taken, lost, more, kept}; taken: attempts that were running. lost: claims whose record is gone. more: 1 = there
-- may be more to take over now. kept: how many entries stay for now, for silent_ms at most.
-- flags: allow-oom
-- include: clock, crash, groups, hand_over, history, largest, progress, removal, requeue, results, stored_format
local now, group, consumer, limit = now_ms(ARGV[1]), ARGV[2], ARGV[5], tonumber(ARGV[7])
local silent_ms, most = tonumber(ARGV[6]), tonumber(ARGV[8])
local UNCLAIMED_MS = 100 -- a live consumer claims what it reads sooner
local read_by = now - UNCLAIMED_MS
local s = shard(KEYS)
local topic = redis.call('HMGET', settings, 'ttr:' .. group, 'ttr', 'groups', 'paused', 'rate', 'largest', 'format', 'key_limit',
  'after_finish', 'results', 'linked')
check_format(topic[7])
s.now, s.group, s.history_cap = now, group, ARGV[3]
s.groups, s.waits, s.key_limit = names(topic[3]), waits(topic[4], topic[5]), topic[8]
s.on_removed = after_removal(s, topic[9], topic[11])
s.results = results_in(topic[10])
if not has(s.groups, group) then return {0, 0, 0, 0} end
local losses = {apart_ms = apart_ms(tonumber(topic[1] or topic[2] or ARGV[4]), now), lost = 0, bytes = 0, taken = 0, rows = {}}
local more, kept, stayed, read_at = 0, 0, 0
losses.stays = function(p, is_running)
  local held_ms = is_running and now - math.abs(tonumber(p.started))
  local soon, stays = not is_running and read_at > read_by or is_running and held_ms < silent_ms, false
  if is_running and not is_ahead(p) then
    local lost = tonumber(p.crashes)
    stays = lost + 1 >= most or held_ms < silent_ms * 2 ^ lost
  end
  stays = stays or soon
  if soon then kept = kept + 1 end
  if stays then stayed = stayed + 1 end
  return stays
end
losses.on_lost = function(job) count_crash(s, losses, job, 'lost: no heartbeat from ') end

for _, stream in ipairs({ready, own}) do
  local count, before = fitting(topic[6], limit, losses.bytes), stayed
  local pending = redis.call('XPENDING', stream, group, '-', '+', count, consumer)
  for _, row in ipairs(pending) do
    local item = redis.call('XRANGE', stream, row[1], row[1])[1]
    read_at = ARGV[1] == '' and now - row[3] or 0 -- with an injected clock Redis's idle times mean nothing
    if item then
      hand_over(s, losses, {stream = stream, id = row[1], member = item[2][2]})
    else
      redis.call('XACK', stream, group, row[1])
    end
  end
  if #pending == count and stayed - before < count then more = 1 end
end
if losses.taken > 0 then redis.call('HINCRBY', counts, 'reclaimed:' .. group, losses.taken) end
remember(s, losses.rows)
return {losses.taken, losses.lost, more, kept}
