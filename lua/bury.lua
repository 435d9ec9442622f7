-- bury: running -> dead, a batch of one group's claims: no step is left, or the job can't succeed.
-- keys: ready, jobs, progress, counts, settings, history, taken, taken_until, wake, bucket, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start, failures
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
-- returns {now_ms, i, ...}: i (from 1) are the refused claims; -i: it was aborted, and its job is cancelled.
-- flags: allow-oom
-- include: bury_job, clock, end_in_group, failures, fence, groups, history, key_limit, progress, receipt, removal,
--   results, stored_format, trim_ready
local now, group = now_ms(ARGV[1]), ARGV[2]
local topic = redis.call('HMGET', settings, 'groups', 'shared', 'overtaken', 'generation:' .. group, 'format',
  'key_limit', 'after_finish', 'results', 'linked')
check_format(topic[5])
local s = shard(KEYS)
s.now, s.group, s.consumer = now, group, ARGV[5]
s.history_cap, s.key_limit, s.groups = ARGV[3], topic[6], served(topic[1], group, topic[4], ARGV[4])
if not s.groups then return refused(now, ARGV, 7, 8) end
s.on_removed = after_removal(s, topic[7], topic[9])
s.results = results_in(topic[8])
local overtaken = tonumber(topic[3] or 0)
local now_text, reply, rows, texts = '\31' .. string.format('%.0f', now), {now}, {}, {}

local lost, buried = fence(s, ARGV, 7, 8), 0
for i = 8, #ARGV, 7 do
  if lost and lost[i] then
    reply[#reply + 1] = lost[i] * (i - 1) / 7
  else
    buried = buried + 1
    local main, entry, id = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local p = parse(redis.call('HGET', progress, field_of(group, id)))
    if entry == '' then p.main = detach(s, main) else redis.call('XDEL', own, entry) end
    bury_job(s, {group = group, id = id, progress = p}, ARGV[i + 4] .. '|' .. ARGV[i + 5])
    release_key(s, group, id)
    rows[#rows + 1] = ARGV[i + 3] .. now_text
    texts[#rows] = ARGV[i + 6]
    if receipts then receipt(s, main, entry, 'dead') end
  end
end
if not topic[2] and overtaken > 0 then trim_ready(s, {}, overtaken) end
if buried > 0 then redis.call('HINCRBY', counts, 'running:' .. group, -buried) end
keep_failures(failures, remember(s, rows), texts, {count = ARGV[6], age = ARGV[7]})
return reply
