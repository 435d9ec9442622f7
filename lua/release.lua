-- release: running -> ready, a batch of one group's claims that are handed back unfinished; the attempts don't count.
-- keys: ready, bucket, progress, counts, settings, history, jobs, wake, taken, taken_until, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- keys of the group: own
-- keys, if given: receipts
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] history cap
-- ARGV[4] generation of the group, as claim returned it
-- ARGV[5] consumer that claimed them
-- ARGV[6..] per claim: main, entry (as claimed), id, history row
-- returns {now_ms, i, ...}: i (from 1) are the refused claims; -i: it was aborted, and its job is cancelled.
-- flags: allow-oom
-- include: clock, end_in_group, fence, groups, history, progress, receipt, removal, requeue, results, stored_format
local now, group = now_ms(ARGV[1]), ARGV[2]
local topic = redis.call('HMGET', settings, 'groups', 'paused', 'rate', 'generation:' .. group, 'format',
  'key_limit', 'after_finish', 'results', 'linked')
check_format(topic[5])
local s = shard(KEYS)
s.now, s.group, s.consumer, s.history_cap = now, group, ARGV[5], ARGV[3]
s.groups = served(topic[1], group, topic[4], ARGV[4])
if not s.groups then return refused(now, ARGV, 4) end
s.waits, s.key_limit, s.on_removed = waits(topic[2], topic[3]), topic[6], after_removal(s, topic[7], topic[9])
s.results = results_in(topic[8])
local now_text, reply, rows = '\31' .. string.format('%.0f', now), {now}, {}

local lost, released = fence(s, ARGV, 4), 0
for i = 6, #ARGV, 4 do
  if lost and lost[i] then
    reply[#reply + 1] = lost[i] * (i - 2) / 4
  else
    released = released + 1
    local main, entry, id = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local p = parse(redis.call('HGET', progress, field_of(group, id)))
    if entry == '' then p.main = detach(s, main) else redis.call('XDEL', own, entry) end
    p.attempt, p.note = p.attempt - 1, ''
    requeue(s, {group = group, id = id, progress = p}, p.due)
    rows[#rows + 1] = ARGV[i + 3] .. now_text
    if receipts then receipt(s, main, entry, 'released') end
  end
end
if released > 0 then redis.call('HINCRBY', counts, 'running:' .. group, -released) end
remember(s, rows)
return reply
