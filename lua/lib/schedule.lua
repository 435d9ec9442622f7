-- include: group_states

-- A schedule's record, which scripts change in the first lines alone, one line each:
--   version    counts its changes, so that who read an older one changes nothing
--   state      active, paused, or ended: no occurrence follows
--   overlap    what happens to an occurrence whose predecessor has not ended: allow, skip, or queue
--   shards     the topic's number of shards when the plan was made: the jobs' ids in it belong to this shard
--   last_ms    the time of the last occurrence that was taken from the plan, or passed over
--   late_ms    occurrences up to this time run however late it is
--   held       the occurrence that waits for its predecessor to end (queue), or ''
--   ahead      the occurrence whose job is enqueued, and was not due yet when the script last looked; or ''
--   previous   id of the job of the last occurrence before that, or ''
--   totals     'fired:skipped:missed'
--   plan       the next occurrences, each 'due_ms\31time_ms\31id\31text', separated by \30
--   more       1 = others follow the planned ones
-- then the definition (the version of the time zones and JSON), and the rest of the record of its jobs, in whose body {due} stands for the text.
local OCCURRENCE = '^(%d+)\31(%d+)\31([^\31]*)\31(.*)$'

-- parse_schedule(record): returns its lines by name, with `plan` as a list and totals apart, and the lines after them as
-- `definition` and `job`
local function parse_schedule(record)
  local schedule, at = {}, 1
  for _, name in ipairs({'version', 'state', 'overlap', 'shards', 'last_ms', 'late_ms', 'held', 'ahead', 'previous',
    'totals', 'planned', 'more', 'definition'}) do
    local ends = string.find(record, '\n', at, true)
    schedule[name] = string.sub(record, at, ends - 1)
    at = ends + 1
  end
  schedule.job = string.sub(record, at)
  schedule.fired, schedule.skipped, schedule.missed = string.match(schedule.totals, '^(%d+):(%d+):(%d+)$')
  schedule.plan = {}
  for one in string.gmatch(schedule.planned, '[^\30]+') do schedule.plan[#schedule.plan + 1] = one end
  return schedule
end

-- format_schedule(schedule): returns the record that parse_schedule reads, as its next version
local function format_schedule(schedule)
  local totals = string.format('%.0f:%.0f:%.0f', schedule.fired, schedule.skipped, schedule.missed)
  return table.concat({string.format('%.0f', schedule.version + 1), schedule.state, schedule.overlap, schedule.shards,
    schedule.last_ms, schedule.late_ms, schedule.held, schedule.ahead, schedule.previous, totals,
    table.concat(schedule.plan, '\30'), schedule.more, schedule.definition, schedule.job}, '\n')
end

-- parse_occurrence(text): returns due_ms, time_ms, id and text of a planned occurrence; nil for ''
local function parse_occurrence(text)
  local due, time, id, shown = string.match(text, OCCURRENCE)
  return tonumber(due), time, id, shown
end

-- fill_in(job, text): returns the rest of an occurrence's record, with the text in place of {due}; in the url, where + means
-- a space, with %2B.
local function fill_in(job, text)
  local head, body = string.match(job, '^([^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n)(.*)$')
  return string.gsub(head, '{due}', (string.gsub(text, '+', '%%%%2B'))) .. string.gsub(body, '{due}', text)
end

-- advance_previous(schedule, now): once it is due, the occurrence whose job was enqueued ahead becomes the previous one.
local function advance_previous(schedule, now)
  if schedule.ahead == '' then return end
  local due, _, id = parse_occurrence(schedule.ahead)
  if due <= now then schedule.previous, schedule.ahead = id, '' end
end

-- is_open(s, id): returns whether a group has yet to end the job, if there is such a job
local function is_open(s, id)
  local record = redis.call('HGET', s.jobs, id)
  if not record then return false end
  local concerned, states = group_states(s, {id = id, record = record})
  for _, group in ipairs(concerned) do
    local p = states[group]
    if not p or (p.state ~= 'd' and p.state ~= 'x') then return true end
  end
end
