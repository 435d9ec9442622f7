-- include: deliveries, end_in_group, group_states, job_row, search_groups

-- A search looks through the jobs of a page: q = {whole=, prefix=, texts=}, and what lib/search_groups.lua asks of groups.
-- whole   how much of a match to return: 'job'; 'record' = without its groups; 'head' = the same, with null as its body;
--         'plan' = only which deliveries it has
-- prefix  of the id
-- texts   must be in the record. One that begins with <, > or = stands for a number that is at most, at least, or just
--         so much: '<5 "user":' for one after '"user":'. A record that has an encoded body (codec/envelope.py), or
--         that may be written in another way, is not looked into: it matches

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

-- head_of(record): returns the record with null as its body
local function head_of(record)
  return string.match(record, '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n') .. 'null'
end

-- query_in(args): returns q. args: whole, state, group, prefix, from, to; how many of_groups, and these; texts
local function query_in(args)
  local q, count = {of_groups = {}}, tonumber(args[7])
  q.whole, q.state, q.group, q.prefix, q.from, q.to = unpack(args, 1, 6)
  for i = 1, count do q.of_groups[i] = {unpack(args, 4 + 4 * i, 7 + 4 * i)} end
  q.texts = {unpack(args, 8 + 4 * count)}
  return q
end

-- matches(s, q, ids, records): looks through the jobs of a page.
-- returns {{id, deliveries, record, delayed, group, progress, waits, ...}, ...}, for each match: deliveries as
-- deliveries_in, the rest as job_row, as far as q.whole goes
local function matches(s, q, ids, records)
  local jobs, names_of, out, wanted = {}, {}, {}, wanted_in(q.texts)
  for i, id in ipairs(ids) do
    if records[i] and string.sub(id, 1, #q.prefix) == q.prefix and may_match(records[i], wanted) then
      jobs[#jobs + 1], names_of[#names_of + 1] = {id = id, record = records[i]}, id
    end
  end
  local values = states_of(s, names_of)
  for i, job in ipairs(jobs) do
    local before = (i - 1) * #s.groups
    job.groups, job.states = states_in(s, job, values, before)
    if is_wanted(s, q, job) then
      local match = {job.id, deliveries_in(s.groups, job.record, values, before)}
      if q.whole == 'record' then match[3] = job.record end
      if q.whole == 'head' then match[3] = head_of(job.record) end
      if q.whole == 'job' then
        for j, value in ipairs(job_row(s, job)) do match[2 + j] = value end
      end
      out[#out + 1] = match
    end
  end
  return out
end
