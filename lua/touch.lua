-- touch: running -> running, a batch of one group's claims: their TTR starts again.
-- keys: ready, progress, settings
-- keys of the group: own
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] default TTR in ms, if the topic sets none
-- ARGV[4] generation of the group, as claim returned it
-- ARGV[5] consumer that claimed them
-- ARGV[6..] per claim: main, entry (as claimed), id, ttr_ms from now
-- returns {now_ms, i, ...}: i (from 1) are the refused claims; -i: the attempt was aborted, and gets no more time.
-- flags: allow-oom
-- include: clock, groups, progress, stored_format
local now, group = now_ms(ARGV[1]), ARGV[2]
local topic = redis.call('HMGET', settings, 'ttr:' .. group, 'ttr', 'groups', 'generation:' .. group, 'format')
check_format(topic[5])
if not served(topic[3], group, topic[4], ARGV[4]) then return refused(now, ARGV, 4) end
local group_ttr, reply = tonumber(topic[1] or topic[2] or ARGV[3]), {now}

for i = 6, #ARGV, 4 do
  local main, entry, id, ttr = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local stream, claimed = ready, main
  if entry ~= '' then stream, claimed = own, entry end
  local p = parse(redis.call('HGET', progress, field_of(group, id)))
  local is_held = p and p.state == 'r' and p.main == main and p.entry == entry and p.note == ARGV[5]
  if is_held and p.aborted then
    reply[#reply + 1] = (2 - i) / 4
  elseif is_held and #redis.call('XPENDING', stream, group, claimed, claimed, 1) == 1 then
    redis.call('XCLAIM', stream, group, p.note, 0, claimed, 'IDLE', math.max(0, group_ttr - ttr), 'JUSTID')
    if is_ahead(p) then p.started = string.format('%.0f', now) end -- it must be running by now
    p.deadline = string.format('%.0f', now + ttr)
    redis.call('HSET', progress, field_of(group, id), format(p))
  else
    reply[#reply + 1] = (i - 2) / 4
  end
end
return reply
