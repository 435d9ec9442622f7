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

-- is_held(stream, group, consumer, entry): whether an entry that was read before is still the consumer's. Notes it in the
-- entry's number of deliveries, so that entry.asked tells whether it asked for it before, since it was read.
-- returns true or false
local function is_held(stream, group, consumer, entry)
  local row = redis.call('XPENDING', stream, group, entry[1], entry[1], 1, consumer)[1]
  entry.asked = row and row[4] > 1
  if row and not entry.asked then
    redis.call('XCLAIM', stream, group, consumer, 0, entry[1], 'RETRYCOUNT', 2, 'JUSTID')
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

-- new_entries(to, stream, group, consumer, most): reads entries that were not delivered to the group yet; from now on
-- they are pending for `consumer`.
-- returns the list `to` with these entries added, and their number
local function new_entries(to, stream, group, consumer, most)
  if most <= 0 then return to, 0 end
  local reply = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', most, 'STREAMS', stream, '>')
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

-- shares(b, streams, group, most, turn): how many entries to read from each of two streams: one from each in turn,
-- starting with stream number `turn`, until the budget is spent.
-- returns {from the first, from the second}
local function shares(b, streams, group, most, turn)
  local next_up, share = {following(streams[1], group, most), following(streams[2], group, most)}, {0, 0}
  for _ = 1, most do
    if share[turn] >= #next_up[turn] then turn = 3 - turn end
    local entry = next_up[turn][share[turn] + 1]
    if not entry or not fits(b, length_of(b, entry)) then break end
    share[turn], turn = share[turn] + 1, 3 - turn
  end
  return share
end

-- both_streams(b, k, group, consumer, given, count, turn): the entries to claim: given = {[stream] = entries}, and new
-- entries, `count` in total. Each stream gets half, if both have enough, so that a job that comes due waits for no more
-- than as many others, however many were kicked. turn: which stream gets a single place first, 1 = ready:GROUP, 2 = ready.
-- returns the entries, those of ready:GROUP first, and how many of them are from ready:GROUP
local function both_streams(b, k, group, consumer, given, count, turn)
  local entries, shared = given[k.own], given[k.ready]
  local most = math.max(0, count - #entries - #shared)
  local half = most == 1 and 2 - turn or math.ceil(most / 2)
  if not b.plain then
    local share = shares(b, {k.own, k.ready}, group, most, turn)
    entries = new_entries(entries, k.own, group, consumer, share[1])
    shared = new_entries(shared, k.ready, group, consumer, share[2])
  else
    local own, others
    entries, own = new_entries(entries, k.own, group, consumer, half)
    shared, others = new_entries(shared, k.ready, group, consumer, most - own)
    if own == half then entries = new_entries(entries, k.own, group, consumer, most - own - others) end
  end
  local again = #entries
  return joined(entries, shared), again
end
