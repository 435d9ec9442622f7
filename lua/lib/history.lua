-- remember(history, cap, fields): one history entry; `fields` is a row of streamdq/history.py. The cap is
-- approximate: whole nodes go, which costs next to nothing. cap 0: no history.
local function remember(history, cap, fields)
  if cap ~= '0' then redis.call('XADD', history, 'MAXLEN', '~', cap, '*', 'e', fields) end
end
-- rare_row(event, id, group, p, record, now, known): the row of an event that no worker reports. What can't be told from
-- the record and the progress comes in `known` = {consumer=, due=, moved=, started=}.
local function rare_row(event, id, group, p, record, now, known)
  local due, created, body = string.match(record, '^(%d+)\n(%d+)\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n()', 13)
  return table.concat({event, id, group, p and p.attempt or 0, p and p.step or 0, known.consumer or '', created,
    known.due or due, known.moved or '', known.started or '', '', '', #record - body + 1, string.format('%.0f', now)},
    '\31')
end
