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
--          d: reason|error
local PROGRESS = '^(%a)|(%d+)%+?(%d*)|(%d+)|(%d+)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|(.*)$'
local AHEAD = 'claimed ahead of a slot by '

-- field_of(group, id): returns the field of the group's progress with the job
local function field_of(group, id) return group .. '\31' .. id end

-- parse(value): reads a progress; `due` is the due_ms of a running attempt, '' as the record says.
-- returns {state=, attempt=, snoozed=, step=, crashes=, main=, sequence=, entry=, started=, deadline=, note=, due=}, all of
-- them text; nil if value is nil or false
local function parse(value)
  if not value then return nil end
  local p = {}
  p.state, p.attempt, p.snoozed, p.step, p.crashes, p.main, p.sequence, p.entry, p.started, p.deadline, p.note =
    string.match(value, PROGRESS)
  p.due = ''
  if p.state == 'r' then p.note, p.due = string.match(p.note, '^([^|]*)|?(.*)$') end
  return p
end

-- is_ahead(p): returns whether p is a running attempt that nobody knows to have started
local function is_ahead(p) return string.sub(p.started, 1, 1) == '-' end

-- was_lost(p): returns whether the job's last consumer was lost with the job in hand: it ran (crashes), or perhaps (AHEAD)
local function was_lost(p) return p.crashes ~= '0' or string.find(p.note, AHEAD, 1, true) == 1 end

-- attempt_of(p, more): returns the attempts as the value has them, with `more` added to those that count
local function attempt_of(p, more) return p.attempt + more .. (p.snoozed == '' and '' or '+' .. p.snoozed) end

-- format(p): returns the value that parse reads
local function format(p)
  local due = p.state == 'r' and p.due ~= '' and '|' .. p.due or ''
  return table.concat({p.state, attempt_of(p, 0), p.step, p.crashes, p.main, p.sequence, p.entry, p.started, p.deadline,
    p.note .. due}, '|')
end

-- member(sequence, group, id): returns a group's own delivery as the bucket and ready:GROUP hold it
local function member(sequence, group, id) return sequence .. '\31' .. group .. '\31' .. id end
