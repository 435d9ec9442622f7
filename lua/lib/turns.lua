-- include: ranked, stream_groups

local APART = 10000000000000

-- next_rank(turn, left): whose turn it is. Of each ten turns of a group one is that of the second priority, and of each
-- hundred one is that of the third, among those that have jobs. left: how many jobs of each rank there are
-- returns the rank; nil = there are none
local function next_rank(turn, left)
  local place = turn % 10 == 0 and 2 or turn % 100 == 55 and 3 or 1
  local found
  for rank = 0, 2 do
    if place > 0 and left[rank] > 0 then found, place = rank, place - 1 end
  end
  return found
end

-- in_turn(s, group, most): returns the next deliveries in the order of their turns, and the number of the last turn
local function in_turn(s, group, most)
  local key, left, first, chosen = ranked_of(s, group), {}, {}, {}
  for rank = 0, 2 do
    local from, to = string.format('%.0f', rank * APART), string.format('(%.0f', (rank + 1) * APART)
    first[rank] = redis.call('ZRANGEBYSCORE', key, from, to, 'LIMIT', 0, most)
    left[rank] = #first[rank]
  end
  local turn = tonumber(redis.call('HGET', s.settings, 'turn:' .. group) or 0)
  for n = 1, most do
    local rank = next_rank(turn + n, left)
    if not rank then return chosen, turn + n - 1 end
    local delivery = first[rank][#first[rank] - left[rank] + 1]
    if s.is_room_for and not s.is_room_for(delivery) then return chosen, turn + n - 1 end
    chosen[n] = delivery
    left[rank] = left[rank] - 1
  end
  return chosen, turn + most
end

-- promote(s, group, stream, most): adds the next jobs to ready:GROUP (stream), so that as many as `most` are unread there, and
-- one more: it wakes a consumer that waits. s.is_room_for: called with each of these deliveries; false = that many are
-- enough; nil = there is no other limit
local function promote(s, group, stream, most)
  if not has_turns(s, group) then return end
  redis.call('XPENDING', stream, group) -- ends the script with the usual error if there is no such group
  local unread = next_unread(stream, group, most + 1)
  local room = most + 1 - #unread
  if room <= 0 then return end
  for _, entry in ipairs(s.is_room_for and unread or {}) do s.is_room_for(entry[2][2]) end
  local chosen, turn = in_turn(s, group, room)
  if #chosen == 0 then return end
  local key = ranked_of(s, group)
  redis.call('ZREM', key, unpack(chosen))
  for _, delivery in ipairs(chosen) do redis.call('XADD', stream, '*', 'j', delivery) end
  redis.call('HSET', s.settings, 'turn:' .. group, string.format('%.0f', turn))
end
