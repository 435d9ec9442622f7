-- One group's progress with one job: HASH field `GROUP\31ID`, value
--   state|attempt|step|crashes|main|sequence|entry|started_ms|deadline_ms|note
-- attempt  the attempts that count, followed by '+N' if N more were snoozed
-- state    r running, a running and aborted (parse shows it as r), w waiting for its next attempt (bucket or ready:GROUP),
--          d dead, x the group has ended the job
-- main     entry of the job in the shared ready stream, '-' after it was removed: the job is for groups with progress
-- started_ms r: when it was claimed, to be started at once; -started_ms: it was claimed ahead of a slot
-- sequence of the current delivery; an entry with another one is out of date
-- deadline_ms r: when the TTR passes; w: when the next attempt is due ('' = see the record)
-- entry    the entry that the running attempt was claimed from: '' means `main`, otherwise an entry of ready:GROUP
-- note     r: consumer, and |due_ms if the record does not say when the attempt was due, and |AT_MS FRACTION TEXT if its
--          handler has said how far it is (report; then due_ms may be empty); w: last error; d: reason|error;
--          x: '' = the group has done the job; or how it has failed permanently: archived, purged, cancelled, expired
local PROGRESS = '^(%a)|(%d+)%+?(%d*)|(%d+)|(%d+)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|(.*)$'
local AHEAD = 'claimed ahead of a slot by '

-- field_of(group, id): returns the field of the group's progress with the job
local function field_of(group, id) return group .. '\31' .. id end

-- parse(value): reads a progress; `due` is the due_ms of a running attempt, '' = see the record. aborted: the attempt runs,
-- and the script that ends it cancels the job.
-- returns {state=, attempt=, snoozed=, step=, crashes=, main=, sequence=, entry=, started=, deadline=, note=, due=,
-- report=, aborted=}: aborted is true or false, the others are text; nil if value is nil or false
local function parse(value)
  if not value then return nil end
  local p = {}
  p.state, p.attempt, p.snoozed, p.step, p.crashes, p.main, p.sequence, p.entry, p.started, p.deadline, p.note =
    string.match(value, PROGRESS)
  p.due, p.aborted = '', p.state == 'a'
  if p.aborted then p.state = 'r' end
  if p.state == 'r' then p.note, p.due, p.report = string.match(p.note, '^([^|]*)|?([^|]*)|?(.*)$') end
  return p
end

-- fresh(sequence, main): returns the progress of a group that has not started the job yet, in the form of parse
local function fresh(sequence, main)
  return {state = 'w', attempt = 0, snoozed = '', step = 0, crashes = 0, main = main, sequence = sequence, entry = '',
    started = '', deadline = '', note = '', due = ''}
end

-- is_ahead(p): returns whether p is a running attempt that is not known to have started
local function is_ahead(p) return string.sub(p.started, 1, 1) == '-' end

-- was_lost(p): returns whether the job was lost with its last consumer, while it ran (crashes) or perhaps ran (AHEAD)
local function was_lost(p) return p.crashes ~= '0' or string.find(p.note, AHEAD, 1, true) == 1 end

-- attempt_of(p, more): returns the attempts in the value's form, with `more` added to those that count
local function attempt_of(p, more) return p.attempt + more .. (p.snoozed == '' and '' or '+' .. p.snoozed) end

-- format(p): returns the value that parse reads
local function format(p)
  local report = p.state == 'r' and p.report and p.report ~= '' and '|' .. p.report or ''
  local due = p.state == 'r' and (p.due ~= '' or report ~= '') and '|' .. p.due or ''
  local state = p.state == 'r' and p.aborted and 'a' or p.state
  return table.concat({state, attempt_of(p, 0), p.step, p.crashes, p.main, p.sequence, p.entry, p.started, p.deadline,
    p.note .. due .. report}, '|')
end

-- member(sequence, group, id): returns a group's own delivery in the form that is kept in the bucket and ready:GROUP
local function member(sequence, group, id) return sequence .. '\31' .. group .. '\31' .. id end
