-- include: history, progress

-- attempt_row(s, event, job, reason): the history row of a running attempt that its consumer does not report. reason: '' =
-- none.
-- returns the row
local function attempt_row(s, event, job, reason)
  local p = job.progress
  return rare_row(s, event, job, {consumer = p.note, started = is_ahead(p) and '' or p.started, due = p.due ~= '' and p.due,
    moved = string.match(p.entry == '' and p.main or p.entry, '^%d+'), reason = reason})
end
