-- include: key_limit, progress, waits

-- What a search asks of a group with a job: q = {state=, group=, from=, to=, of_groups=}
-- state, group  the job must be in this state, in this group; '' = any. 'waiting': for other jobs; 'blocked': one of these failed
-- from, to      its first delivery, or its next attempt, must be due between these times; '' = whenever
-- of_groups     {{name, operator, type, value}, ...}: what must hold for `attempts`, `error` or `reason`; type: 'number',
--               'string', or '' for a value that none of them has
-- All of it must be true in the same group.
local STATES = {r = 'running', d = 'dead'}

-- is_after(one, other): returns whether a text comes after another one by their bytes. Lua compares texts by the locale.
local function is_after(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then return a > b end
  end
  return #one > #other
end

-- field_in(p, name): returns attempts, error or reason of a group's progress with a job, nil if it has none. p: nil = it has
-- not begun
local function field_in(p, name)
  if name == 'attempts' then return tonumber(p and p.attempt or 0) end
  local reason, error
  if p and p.state == 'w' and p.note ~= '' then error = p.note end
  if p and p.state == 'd' then reason, error = string.match(p.note, '^([^|]*)|?(.*)$') end
  if p and p.state == 'x' and p.note ~= '' then reason = p.note end
  if name == 'error' then return error end
  return reason
end

-- is_so(found, how, kind, value): returns whether a field's value fulfills a condition
local function is_so(found, how, kind, value)
  if kind == 'number' then value = tonumber(value) end
  if how == '=' or how == '!=' then return (type(found) == kind and found == value) == (how == '=') end
  if type(found) ~= kind then return false end
  if found == value then return how == '<=' or how == '>=' end
  local more
  if kind == 'string' then more = is_after(found, value) else more = found > value end
  return more == (string.sub(how, 1, 1) == '>')
end

-- has_fields(q, p): returns whether all that is asked of fields holds for a group's progress with a job
local function has_fields(q, p)
  for _, one in ipairs(q.of_groups) do
    if not is_so(field_in(p, one[1]), one[2], one[3], one[4]) then return false end
  end
  return true
end

-- is_due(q, record, p): returns whether the job is due when it is asked for
local function is_due(q, record, p)
  if q.from == '' then return true end
  local due = p and p.state == 'w' and tonumber(p.deadline) or tonumber(string.match(record, '^%d+', 13))
  return due >= tonumber(q.from) and due <= tonumber(q.to) and due < tonumber(NEVER)
end

-- is_in_state(s, q, job, group): returns whether the group has the job in the state that is asked for
local function is_in_state(s, q, job, group)
  local p = job.states[group]
  if q.state == '' then return true end
  if p and p.state == 'x' then return q.state == (p.note == '' and 'done' or 'ended') end
  if p and STATES[p.state] then return q.state == STATES[p.state] end
  if (p and p.deadline or string.sub(job.record, 13, 25)) == NEVER then
    return q.state == 'waiting' or q.state == 'blocked' and is_blocked(s, job)
  end
  if q.state ~= 'delayed' and q.state ~= 'ready' then return false end
  local delivery = p and member(p.sequence, group, job.id) or string.sub(job.record, 1, 12) .. job.id
  local waits = redis.call('ZSCORE', s.bucket, delivery) or p and waits_for_key(s, group, job.id)
  return (q.state == 'delayed') == (waits and true or false)
end

-- asks_of_groups(q): returns whether it asks anything of groups
local function asks_of_groups(q) return q.state ~= '' or q.group ~= '' or q.from ~= '' or #q.of_groups > 0 end

-- is_wanted(s, q, job): whether a group has the job as it is asked for. job.groups and job.states: from states_in.
-- returns true or false; false if the job is about to end with its groups
local function is_wanted(s, q, job)
  if not asks_of_groups(q) then return #job.groups > 0 end
  for _, group in ipairs(job.groups) do
    local p = job.states[group]
    if (q.group == '' or q.group == group) and is_due(q, job.record, p) and has_fields(q, p) and is_in_state(s, q, job, group) then
      return true
    end
  end
  return false
end
