-- erase_rows: removes rows of the history, with what is kept of failures under their ids. For a dump that does not have
-- them yet they count as dumped, or it would report them as lost.
-- keys: history, failures, settings
-- ARGV[1..] entries
-- returns {rows, failures}: how many of each were removed
-- flags: allow-oom
-- include: dumps, stored_format
check_format(redis.call('HGET', settings, 'format'))
local dumps, gone, list = dumps_of(settings), {0, 0}, {}

local function is_after(entry, mark)
  local ms, n = string.match(entry, '(%d+)%-(%d+)')
  local mark_ms, mark_n = string.match(mark, '(%d+)%-(%d+)')
  ms, mark_ms = tonumber(ms), tonumber(mark_ms)
  return ms > mark_ms or ms == mark_ms and tonumber(n) > tonumber(mark_n)
end

for _, entry in ipairs({unpack(ARGV, 1)}) do
  local removed = redis.call('XDEL', history, entry)
  gone[1], gone[2] = gone[1] + removed, gone[2] + redis.call('XDEL', failures, entry)
  for _, dump in ipairs(dumps) do
    if removed == 1 and is_after(entry, dump.mark) then dump.written = dump.written + 1 end
  end
end
for i, dump in ipairs(dumps) do list[i] = dump.id .. ':' .. dump.mark .. ':' .. string.format('%.0f', dump.written) end
if gone[1] > 0 and #list > 0 then redis.call('HSET', settings, 'dumps', table.concat(list, ',')) end
return gone
