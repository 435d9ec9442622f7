-- A search looks through the jobs of a page: q = {state=, group=, prefix=, whole=, texts=}
-- state, group  the job must be in this state, in this group; '' = any
-- prefix        of the id
-- whole         how much of a match to return: 'job'; 'head' = the body is null; 'plan' = only which deliveries it has
-- texts         must be in the record. One that begins with <, > or = stands for a number that is at most, at least, or just
--               so much: '<5 "user":' for one after '"user":'. A record that has an encoded body (codec/envelope.py), or
--               that may be written in another way, is not looked into: it matches
local STATES = {r = 'running', d = 'dead', x = 'done'}

-- What streamdq writes into no record's header and into JSON at most within a text: the beginning of an encoded body, spaces
-- after colons, and escaped letters; and spaces between a name and its colon. A row of an outbox may be written by any
-- program.
local UNUSUAL, SPACES = {'\255', '": ', '":\t', '":\r', '\\u'}, {'" ', '"\t', '"\r'}

-- wanted_in(texts): returns {{text, sign, bound}, ...}, of q.texts; sign and bound are nil without a number
local function wanted_in(texts)
  local wanted = {}
  for i, text in ipairs(texts) do
    local sign, bound, before = string.match(text, '^([<>=])(%S+) (.*)$')
    wanted[i] = {before or text, sign, tonumber(bound)}
  end
  return wanted
end

-- has_text(record, text, sign, bound): returns whether the record has the text, with such a number after it if there is a sign
local function has_text(record, text, sign, bound)
  local at = 1
  while true do
    local _, last = string.find(record, text, at, true)
    if not sign or not last then return last ~= nil end
    local number = tonumber(string.match(record, '^%-?%d[%d.eE+-]*', last + 1))
    if number and (number == bound or sign == '<' and number < bound or sign == '>' and number > bound) then return true end
    at = last + 1
  end
end

-- is_unusual(record): returns whether the record may be written in another way than streamdq does
local function is_unusual(record)
  for _, one in ipairs(UNUSUAL) do
    if string.find(record, one, 1, true) then return true end
  end
  for _, one in ipairs(SPACES) do
    local _, last = string.find(record, one, 1, true)
    while last do
      if string.find(record, '^[ \t\r]*:', last + 1) then return true end
      _, last = string.find(record, one, last + 1, true)
    end
  end
  return false
end

-- may_match(record, wanted): returns whether a record may have a body that has all that is wanted
local function may_match(record, wanted)
  for _, each in ipairs(wanted) do
    if not has_text(record, unpack(each)) then return is_unusual(record) end
  end
  return true
end

-- is_in(row, state, group): whether a group has the job in this state. row: of job_row; state, group: '' = any.
-- returns true or false
local function is_in(row, state, group)
  for i = 3, #row, 3 do
    if group == '' or row[i] == group then
      local phase = string.sub(row[i + 1], 1, 1)
      local waits = row[phase == '' and 2 or i + 2] == 1 and 'delayed' or 'ready'
      if state == '' or (STATES[phase] or waits) == state then return true end
    end
  end
  return false
end

-- head_of(record): returns the record with null as its body
local function head_of(record)
  return string.match(record, '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n') .. 'null'
end

-- matches(k, groups, q, ids, records): looks through the jobs of a page.
-- k = {bucket=, progress=, settings=, leaving=, lanes=, keyed=}
-- returns {{id, deliveries, record, delayed, group, progress, waits, ...}, ...}, for each match: deliveries as
-- deliveries_in, the rest as job_row, but none with q.whole 'plan'
local function matches(k, groups, q, ids, records)
  local names_of, these, out, wanted = {}, {}, {}, wanted_in(q.texts)
  for i, id in ipairs(ids) do
    if records[i] and string.sub(id, 1, #q.prefix) == q.prefix and may_match(records[i], wanted) then
      names_of[#names_of + 1], these[#these + 1] = id, records[i]
    end
  end
  local values = states_of(k, groups, names_of)
  for i, id in ipairs(names_of) do
    local before = (i - 1) * #groups
    local row = job_row(k, groups, id, these[i], values, before)
    if is_in(row, q.state, q.group) then
      local match = {id, deliveries_in(groups, these[i], values, before)}
      if q.whole ~= 'plan' then
        if q.whole == 'head' then row[1] = head_of(row[1]) end
        for _, value in ipairs(row) do match[#match + 1] = value end
      end
      out[#out + 1] = match
    end
  end
  return out
end
