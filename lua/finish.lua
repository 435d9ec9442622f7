-- finish: running -> done, a batch of one group's claims.
-- keys: ready, jobs, progress, counts, settings, history, taken, taken_until, wake, bucket, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- keys of the group: own
-- keys, if given: receipts
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] history cap
-- ARGV[4] generation of the group, as claim returned it
-- ARGV[5] consumer that claimed them
-- ARGV[6..] per claim: main, entry (as claimed), id, history row; then, if the caller has results, that of each claim, as it
-- is kept (results.lua), and the text 'results'; then, if there is one claim, whose handler has added jobs to its flow, these
-- (add_children), and the text 'children'
-- returns {now_ms, i, ...}: i (from 1) are the refused claims, which were taken over (the fence); -i: it was aborted, and
-- its job is cancelled.
-- flags: allow-oom
-- include: children, clock, end_in_group, fence, groups, history, key_limit, receipt, removal, report_end, results,
--   stored_format, trim_ready
local now, group = now_ms(ARGV[1]), ARGV[2]
local topic = redis.call('HMGET', settings, 'groups', 'shared', 'overtaken', 'generation:' .. group, 'format',
  'after_finish', 'key_limit', 'dumps', 'results', 'linked')
check_format(topic[5])
local s = shard(KEYS)
s.now, s.group, s.consumer = now, group, ARGV[5]
s.history_cap, s.key_limit, s.groups = ARGV[3], topic[7], served(topic[1], group, topic[4], ARGV[4])
s.on_removed = after_removal(s, topic[6], topic[10])
s.results = results_in(topic[9])
local children
if ARGV[#ARGV] == 'children' then
  table.remove(ARGV)
  children = table.remove(ARGV)
end
local sent = {} -- the results, which are taken off the end of the arguments
if ARGV[#ARGV] == 'results' then
  table.remove(ARGV)
  for i = (#ARGV - 5) / 5, 1, -1 do sent[i] = table.remove(ARGV) end
end
if not s.groups then return refused(now, ARGV, 4) end
local overtaken = tonumber(topic[3] or 0)
local now_text, reply, rows = '\31' .. string.format('%.0f', now), {now}, {}

local lost, all_fields = fence(s, ARGV, 4)
local shared, ids, fields, n, done, alone, args = {}, {}, {}, 0, 0, #s.groups == 1, ARGV
if children and not lost then add_children(s, args[8], children) end
local others_too, mains, own_entries, admitted = {}, {}, {}, {} -- admitted: these may be, in a topic that limits its keys
for i = 6, #ARGV, 4 do
  if lost and lost[i] then
    reply[#reply + 1] = lost[i] * (i - 2) / 4
  else
    done = done + 1
    local main, entry, id = args[i], args[i + 1], args[i + 2]
    if entry ~= '' then own_entries[#own_entries + 1], admitted[#admitted + 1] = entry, id end
    if alone and main ~= '-' then
      n = n + 1
      shared[n], ids[n], fields[n] = main, id, all_fields[(i - 2) / 4]
    else
      others_too[#others_too + 1], mains[#mains + 1] = id, main
    end
    rows[done] = args[i + 3] .. now_text
    if receipts then receipt(s, main, entry, '') end
    if s.results then report_end(s, {group = group, id = id}, sent[(i - 2) / 4] or 'done|') end
  end
end
if #own_entries > 0 then redis.call('XDEL', own, unpack(own_entries)) end
end_in_group(s, group, others_too, mains)
if not topic[2] and (overtaken > 0 or n >= 50) then trim_ready(s, shared, overtaken)
elseif n > 0 then redis.call('XDEL', ready, unpack(shared)) end
if n > 0 then
  redis.call('HDEL', jobs, unpack(ids))
  if s.on_removed then s.on_removed(ids) end
  redis.call('HDEL', progress, unpack(fields))
end
if s.key_limit then for _, id in ipairs(admitted) do release_key(s, group, id) end end
if done > 0 then
  redis.call('HINCRBY', counts, 'done:' .. group, done)
  redis.call('HINCRBY', counts, 'running:' .. group, -done)
end
remember(s, rows, topic[8])
return reply
