-- bury: running -> dead, a batch of one group's claims: no step is left, or the job can't succeed.
-- keys: ready, progress, counts, settings, history, wake, bucket, key_tickets, key_waiting, key_admitted,
--   key_unstarted, key_counts, key_paused, key_next_start, failures
-- keys of the group: own, dead
-- keys, if given: receipts
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] history cap
-- ARGV[4] generation of the group, as claim returned it
-- ARGV[5] consumer that claimed them
-- ARGV[6] how many failures are kept, 0 = none
-- ARGV[7] for how long, in ms; 0 = no limit
-- ARGV[8..] per claim: main, entry (as claimed), id, history row, reason, error, failure ('' = none to keep)
-- returns {now_ms, i, ...}: i (from 1) are the refused claims.
-- flags: allow-oom
-- include: stored_format, clock, failures, groups, history, progress, bury_job, receipt, ring, key_tickets, key_pace,
--   key_limit, settle, fence, trim_ready
local now, group, cap = now_ms(ARGV[1]), ARGV[2], ARGV[3]
local topic = redis.call('HMGET', settings, 'groups', 'shared', 'overtaken', 'generation:' .. group, 'format',
  'key_limit')
check_format(topic[5])
local k = shard(KEYS)
k.now, k.group, k.consumer = now, group, ARGV[5]
k.key_limit = topic[6]
local groups = served(topic[1], group, topic[4], ARGV[4])
if not groups then return refused(now, ARGV, 7, 8) end
local overtaken = tonumber(topic[3] or 0)
local now_text, reply, rows, told = '\31' .. string.format('%.0f', now), {now}, {}, {}

local lost, buried = fence(k, ARGV, 7, 8), 0
for i = 8, #ARGV, 7 do
  if lost and lost[i] then
    reply[#reply + 1] = (i - 1) / 7
  else
    buried = buried + 1
    local main, entry, id = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local p = parse(redis.call('HGET', progress, field_of(group, id)))
    if entry == '' then p.main = detach(k, groups, main) else redis.call('XDEL', own, entry) end
    bury_job(k, group, id, p, now, ARGV[i + 4], ARGV[i + 5])
    release_key(k, group, id)
    rows[#rows + 1] = ARGV[i + 3] .. now_text
    told[#rows] = ARGV[i + 6]
    if receipts then receipt(receipts, group, main, entry, 'dead', now) end
  end
end
if not topic[2] and overtaken > 0 then trim_ready(k, settings, group, {}, overtaken) end
if buried > 0 then redis.call('HINCRBY', counts, 'running:' .. group, -buried) end
local entries = {}
remember(history, counts, settings, cap, rows, nil, entries)
keep_failures(failures, ARGV[6], ARGV[7], entries, told)
return reply
