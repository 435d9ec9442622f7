-- include: stream_groups

-- How much one claim reads: no more bytes of records than the budget allows, or one record. If the largest record of
-- the shard is small, nothing is counted; otherwise claim asks for the length of each record before it reads it.
-- Entries are in Redis's form: {entry, {'j', member}}.
local READ_BYTES, PLAIN_BYTES = 262144, 1048576

-- budget_of(jobs, largest, most): returns the budget of a claim of `most` entries; largest: settings field, or nil
local function budget_of(jobs, largest, most)
  return {jobs = jobs, left = READ_BYTES, plain = most * tonumber(largest or 0) <= PLAIN_BYTES}
end

-- fits(b, bytes): takes a record of this length out of the budget.
-- returns whether it may be read
local function fits(b, bytes)
  local first = b.left == READ_BYTES
  b.left = b.left - bytes
  return first or b.left >= 0
end

-- length_of(b, entry): returns the length of the entry's record; 0 while nothing is counted
local function length_of(b, entry)
  local rest = string.sub(entry[2][2], 13)
  return b.plain and 0 or redis.call('HSTRLEN', b.jobs, string.match(rest, '^\31[^\31]*\31(.*)$') or rest)
end

-- is_held(s, stream, entry): whether an entry that was read before is still the consumer's. Notes it in the entry's number
-- of deliveries, so that entry.asked tells whether the consumer asked for it before, since it was read.
-- returns true or false
local function is_held(s, stream, entry)
  local row = redis.call('XPENDING', stream, s.group, entry[1], entry[1], 1, s.consumer)[1]
  entry.asked = row and row[4] > 1
  if row and not entry.asked then
    redis.call('XCLAIM', stream, s.group, s.consumer, 0, entry[1], 'RETRYCOUNT', 2, 'JUSTID')
  end
  return row ~= nil
end

-- joined(to, more): returns the entries of both lists, in this order; may modify either list
local function joined(to, more)
  if #to == 0 then return more end
  local n = #to
  for i = 1, #more do to[n + i] = more[i] end
  return to
end

-- new_entries(s, to, stream, most): reads entries that were not delivered to the group yet; from now on they are pending for
-- the consumer.
-- returns the list `to` with these entries added, and their number
local function new_entries(s, to, stream, most)
  if most <= 0 then return to, 0 end
  local reply = redis.call('XREADGROUP', 'GROUP', s.group, s.consumer, 'COUNT', most, 'STREAMS', stream, '>')
  if not (reply and reply[1]) then return to, 0 end
  return joined(to, reply[1][2]), #reply[1][2]
end

-- following(stream, group, most): returns the entries that new_entries would read, without delivering them to the group.
-- Ends the script with the same error if there is no such group.
local function following(stream, group, most)
  if most <= 0 then return {} end
  redis.call('XPENDING', stream, group)
  return next_unread(stream, group, most)
end

-- shares(s, b, most, turn): how many entries to read from ready:GROUP and from ready: one from each in turn, until the budget
-- is spent. turn: which one begins, 1 = ready:GROUP, 2 = ready.
-- returns {from ready:GROUP, from ready}
local function shares(s, b, most, turn)
  local next_up, share = {following(s.own, s.group, most), following(s.ready, s.group, most)}, {0, 0}
  for _ = 1, most do
    if share[turn] >= #next_up[turn] then turn = 3 - turn end
    local entry = next_up[turn][share[turn] + 1]
    if not entry or not fits(b, length_of(b, entry)) then break end
    share[turn], turn = share[turn] + 1, 3 - turn
  end
  return share
end

-- both_streams(s, b, given, count): the entries to claim: given = {[stream] = entries}, and new entries, `count` in total. Each
-- stream gets half, if both have enough, so that a job that comes due waits for no more than as many others, however many
-- were kicked. A single place belongs to each stream by turns, from one millisecond to the next.
-- returns the entries, those of ready:GROUP first, and how many of them are from ready:GROUP
local function both_streams(s, b, given, count)
  local entries, shared, turn = given[s.own], given[s.ready], 1 + s.now % 2
  local most = math.max(0, count - #entries - #shared)
  local half = most == 1 and 2 - turn or math.ceil(most / 2)
  if not b.plain then
    local share = shares(s, b, most, turn)
    entries = new_entries(s, entries, s.own, share[1])
    shared = new_entries(s, shared, s.ready, share[2])
  else
    local own, others
    entries, own = new_entries(s, entries, s.own, half)
    shared, others = new_entries(s, shared, s.ready, most - own)
    if own == half then entries = new_entries(s, entries, s.own, most - own - others) end
  end
  local own_count = #entries
  return joined(entries, shared), own_count
end
