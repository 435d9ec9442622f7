-- What one claim reads: no more bytes of records than fit, or one record. While the largest record of the shard is small
-- enough nothing is counted; else entries are read a few at a time and their records' lengths are added up.
-- budget_of(jobs, largest, most): for so many entries. fits(b): whether another one may be read.
-- spend(b, entries, first): of these, those from `first` on were read. Entries are as Redis gives them,
-- {id, {'j', member}}.
local READ_BYTES, PLAIN_BYTES = 524288, 1048576
local function budget_of(jobs, largest, most)
  largest = tonumber(largest or 0)
  return {jobs = jobs, left = READ_BYTES, largest = largest, plain = most * largest <= PLAIN_BYTES}
end
local function fits(b) return b.plain or b.left == READ_BYTES or b.left >= b.largest end
local function spend(b, entries, first)
  for i = first, b.plain and 0 or #entries do
    local rest = string.sub(entries[i][2][2], 13)
    b.left = b.left - redis.call('HSTRLEN', b.jobs, string.match(rest, '^\31[^\31]*\31(.*)$') or rest)
  end
end
-- new_entries(b, to, stream, group, consumer, most): adds entries that no consumer of the group has had to the list `to`;
-- they are pending for `consumer` from now on. Returns how many.
local function new_entries(b, to, stream, group, consumer, most)
  if most <= 0 or not fits(b) then return 0 end
  local reply = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', most, 'STREAMS', stream, '>')
  local found = reply and reply[1] and reply[1][2] or {}
  for i = 1, #found do to[#to + 1] = found[i] end
  spend(b, found, 1)
  return #found
end
-- both_streams(b, k, group, consumer, given, count, now): what is claimed: what was `given`, by stream, and new entries,
-- `count` in all. The streams are read in turn, so that what comes due waits for no more than as many others, however
-- many were kicked; a single place each has in turn.
-- Returns the entries, and how many of them, the first, are of ready:GROUP. k = {own=, ready=}
local function both_streams(b, k, group, consumer, given, count, now)
  local streams, lists, open, turn = {k.own, k.ready}, {given[k.own], given[k.ready]}, {true, true}, 1
  local portion = math.ceil((count - #lists[1]) / 2) -- of ready:GROUP, before the other is read
  if count == 1 or not b.plain and 2 * b.largest > READ_BYTES then turn = 1 + now % 2 end
  while open[1] or open[2] do
    local most = count - #lists[1] - #lists[2]
    if turn == 1 then most, portion = math.min(most, portion), count end
    if not b.plain then most = math.min(most, math.max(1, math.floor(b.left / b.largest / 2))) end
    open[turn] = open[turn] and most > 0 and new_entries(b, lists[turn], streams[turn], group, consumer, most) == most
    turn = 3 - turn
  end
  local entries, again = lists[1], #lists[1]
  for i, entry in ipairs(lists[2]) do entries[again + i] = entry end
  return entries, again
end
