-- One group's progress with one job: HASH field `GROUP\31ID`, value
--   state|attempt|step|crashes|main|sequence|entry|started_ms|deadline_ms|note
-- attempt  those that count; with '+N' behind it where N more were snoozed
-- state    r running, w waiting for its next attempt (bucket or ready:GROUP), d dead, x through
-- main     entry of the job in the shared ready stream, '-' once that was removed: the job is for groups with progress
-- started_ms r: when it was claimed, to be started at once; -started_ms: it was claimed ahead of a slot
-- sequence which delivery is the current one; an entry that carries another one is out of date
-- deadline_ms r: when the TTR passes; w: when the next attempt is due ('' as the record says)
-- entry    where the running attempt was claimed: '' means `main`, else an entry of ready:GROUP
-- note     r: consumer, and |due_ms where the record does not say when the attempt was due; w: last error;
--          d: reason|error. Parsed, the due_ms of a running attempt is `due`, '' as the record says.
local PROGRESS = '^(%a)|(%d+)%+?(%d*)|(%d+)|(%d+)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|(.*)$'
local function field_of(group, id) return group .. '\31' .. id end
local function parse(value)
  if not value then return nil end
  local p = {}
  p.state, p.attempt, p.snoozed, p.step, p.crashes, p.main, p.sequence, p.entry, p.started, p.deadline, p.note =
    string.match(value, PROGRESS)
  p.due = ''
  if p.state == 'r' then p.note, p.due = string.match(p.note, '^([^|]*)|?(.*)$') end
  return p
end
-- is_ahead(p): a running attempt that nobody knows to have started.
local function is_ahead(p) return string.sub(p.started, 1, 1) == '-' end
local AHEAD = 'claimed ahead of a slot by '
-- was_lost(p): its last consumer was, with the job in hand; whether it ran is known (crashes) or not (AHEAD).
local function was_lost(p) return p.crashes ~= '0' or string.find(p.note, AHEAD, 1, true) == 1 end
-- attempt_of(p, more): how attempts stand in the value; `more`: that many are added.
local function attempt_of(p, more) return p.attempt + more .. (p.snoozed == '' and '' or '+' .. p.snoozed) end
local function format(p)
  local due = p.state == 'r' and p.due ~= '' and '|' .. p.due or ''
  return table.concat({p.state, attempt_of(p, 0), p.step, p.crashes, p.main, p.sequence, p.entry, p.started, p.deadline,
    p.note .. due}, '|')
end
-- member(sequence, group, id): how a group's own delivery stands in the bucket and in ready:GROUP.
local function member(sequence, group, id) return sequence .. '\31' .. group .. '\31' .. id end
