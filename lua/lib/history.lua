-- remember(history, counts, settings, cap, rows, dumps, entries): adds `rows` (streamdq/store/history/rows.py) to the history and counts
-- them; cap '0' keeps none. The cap is approximate: Redis drops whole nodes, which costs next to nothing. While a dump
-- is registered, nothing is dropped here, as only trim_history knows what the dump has. dumps: settings field, false = there
-- is none; nil = not read yet. The first entry ever identifies the stream: settings field `history_since`. entries: a table
-- that gets the rows' ids, or nil.
local function remember(history, counts, settings, cap, rows, dumps, entries)
  if cap == '0' or #rows == 0 then return end
  local first
  for i = 1, #rows - 1 do
    local entry = redis.call('XADD', history, '*', 'e', rows[i])
    first = first or entry
    if entries then entries[i] = entry end
  end
  local last
  if dumps == nil then dumps = redis.call('HEXISTS', settings, 'dumps') == 1 end
  if dumps then
    last = redis.call('XADD', history, '*', 'e', rows[#rows])
  else
    last = redis.call('XADD', history, 'MAXLEN', '~', cap, '*', 'e', rows[#rows])
  end
  if entries then entries[#rows] = last end
  if redis.call('HINCRBY', counts, 'history', #rows) == #rows then
    redis.call('HSET', settings, 'history_since', first or last)
  end
end

-- rare_row(event, id, group, p, record, now, known): an event that no worker reports. known = {consumer=, due=, moved=,
-- started=} has the values that are not in the record or the progress p (may be nil); each of them may be nil or false.
-- returns the row
local function rare_row(event, id, group, p, record, now, known)
  local due, created, url, body = string.match(record,
    '^(%d+)\n(%d+)\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)\n()', 13)
  return table.concat({event, id, group, p and p.attempt or 0, p and p.step or 0, known.consumer or '', created,
    known.due or due, known.moved or '', known.started or '', '', '', #record - body + 1, string.match(url, '\31(.*)$') or '',
    string.format('%.0f', now)},
    '\31')
end
