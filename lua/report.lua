-- report: running -> running, a batch of one group's claims: how far their handlers say they are. It ends with the attempt.
-- keys: progress, settings
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] generation of the group, as claim returned it
-- ARGV[4] consumer that claimed them
-- ARGV[5..] per claim: main, entry (as claimed), id, report ('FRACTION TEXT', FRACTION may be empty)
-- returns {now_ms, i, ...}: i (from 1) are the refused claims; -i: the attempt was aborted, and nothing was noted.
-- include: clock, groups, progress, stored_format
local now, group = now_ms(ARGV[1]), ARGV[2]
local topic = redis.call('HMGET', settings, 'groups', 'generation:' .. group, 'format')
check_format(topic[3])
if not served(topic[1], group, topic[2], ARGV[3]) then return refused(now, ARGV, 4, 5) end
local reply = {now}

for i = 5, #ARGV, 4 do
  local main, entry, id = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local p = parse(redis.call('HGET', progress, field_of(group, id)))
  if not (p and p.state == 'r' and p.main == main and p.entry == entry and p.note == ARGV[4]) then
    reply[#reply + 1] = (i - 1) / 4
  elseif p.aborted then
    reply[#reply + 1] = (1 - i) / 4
  else
    p.report = string.format('%.0f ', now) .. ARGV[i + 3]
    redis.call('HSET', progress, field_of(group, id), format(p))
  end
end
return reply
