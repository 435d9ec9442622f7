-- remember(s, rows, dumps): adds `rows` (streamdq/store/history/rows.py) to the history and counts them; s.history_cap '0' keeps
-- none. The cap is approximate: Redis drops whole nodes, which costs next to nothing. While a dump is registered, nothing is
-- dropped here, as only trim_history knows what the dump has. dumps: settings field, false = there is none; nil = not read
-- yet. The first entry ever identifies the stream: settings field `history_since`.
-- returns the rows' ids
local function remember(s, rows, dumps)
  local ids = {}
  if s.history_cap == '0' or #rows == 0 then return ids end
  for i = 1, #rows - 1 do ids[i] = redis.call('XADD', s.history, '*', 'e', rows[i]) end
  if dumps == nil then dumps = redis.call('HEXISTS', s.settings, 'dumps') == 1 end
  if dumps then
    ids[#rows] = redis.call('XADD', s.history, '*', 'e', rows[#rows])
  else
    ids[#rows] = redis.call('XADD', s.history, 'MAXLEN', '~', s.history_cap, '*', 'e', rows[#rows])
  end
  if redis.call('HINCRBY', s.counts, 'history', #rows) == #rows then
    redis.call('HSET', s.settings, 'history_since', ids[1])
  end
  return ids
end

-- rare_row(s, event, job, known): an event that no worker reports. known = {consumer=, due=, moved=, started=, reason=} has
-- the values that are not in the job's record or progress (may be nil); each of them may be nil or false.
-- A job that waits for others (waits.lua) has no due time.
-- returns the row
local function rare_row(s, event, job, known)
  local due, created, url, body = string.match(job.record,
    '^(%d+)\n(%d+)\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)\n()', 13)
  local p = job.progress
  return table.concat({event, job.id, job.group, p and p.attempt or 0, p and p.step or 0, known.consumer or '', created,
    known.due or due ~= '9999999999999' and due or '', known.moved or '', known.started or '', '', known.reason or '',
    #job.record - body + 1,
    string.match(url, '\31(.*)$') or '', string.format('%.0f', s.now)}, '\31')
end
