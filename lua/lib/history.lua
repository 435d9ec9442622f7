-- remember(history, counts, settings, cap, rows): history entries, `rows` of streamdq/store/history.py, and their number. The
-- cap is approximate: whole nodes go, which costs next to nothing. Where a dump is registered nothing goes here, for
-- only trim knows what the dump has. cap 0: no history. The first row ever gives the stream's life its name (hold).
local function remember(history, counts, settings, cap, rows)
  if cap == '0' or #rows == 0 then return end
  local first
  for i = 1, #rows - 1 do
    local entry = redis.call('XADD', history, '*', 'e', rows[i])
    first = first or entry
  end
  local last
  if redis.call('HEXISTS', settings, 'dumps') == 1 then
    last = redis.call('XADD', history, '*', 'e', rows[#rows])
  else
    last = redis.call('XADD', history, 'MAXLEN', '~', cap, '*', 'e', rows[#rows])
  end
  if redis.call('HINCRBY', counts, 'history', #rows) == #rows then
    redis.call('HSET', settings, 'history_since', first or last)
  end
end
-- rare_row(event, id, group, p, record, now, known): the row of an event that no worker reports. What can't be told from
-- the record and the progress comes in `known` = {consumer=, due=, moved=, started=}.
local function rare_row(event, id, group, p, record, now, known)
  local due, created, body = string.match(record, '^(%d+)\n(%d+)\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n()', 13)
  return table.concat({event, id, group, p and p.attempt or 0, p and p.step or 0, known.consumer or '', created,
    known.due or due, known.moved or '', known.started or '', '', '', #record - body + 1, string.format('%.0f', now)},
    '\31')
end
