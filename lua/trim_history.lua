-- trim_history: removes old history, beyond the length or older than the age. It removes whole nodes of the stream, at
-- most about 10 000 rows for each of the two. Rows that a registered dump does not have yet stay, however many.
-- keys: history, counts, settings
-- ARGV[1] length; 0 = no limit: no history is written
-- ARGV[2] age in ms; 0 = no limit
-- returns how many rows were removed; more than 0 = there may be more to remove
-- flags: allow-oom
-- include: clock, dumps, stored_format
check_format(redis.call('HGET', settings, 'format'))
local length, age, dumps, gone = tonumber(ARGV[1]), tonumber(ARGV[2]), dumps_of(settings), 0
if length > 0 then
  local written = tonumber(redis.call('HGET', counts, 'history') or 0)
  for _, dump in ipairs(dumps) do length = math.max(length, written - dump.written) end
  gone = redis.call('XTRIM', history, 'MAXLEN', '~', string.format('%.0f', length))
end
if age > 0 then
  -- By Redis's own clock, like the entries' ids.
  local oldest, sequence = now_ms('') - age, 0
  for _, dump in ipairs(dumps) do
    local ms, n = string.match(dump.mark, '(%d+)%-(%d+)')
    ms, n = tonumber(ms), tonumber(n)
    if ms < oldest or ms == oldest and n < sequence then oldest, sequence = ms, n end
  end
  gone = gone + redis.call('XTRIM', history, 'MINID', '~', string.format('%.0f-%.0f', math.max(0, oldest), sequence))
end
return gone
