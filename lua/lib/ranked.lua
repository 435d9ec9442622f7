-- include: link_key, stream_groups

-- Priorities. In a topic with them (settings field `prioritized`), a job that is due waits for its turn in a ZSET for each
-- group, and is added to ready:GROUP just before it is claimed. So no stream holds more than a few jobs that a more
-- important one could not overtake. The ZSET's score is rank * APART + due_ms, the rank 0 = high, 1 = normal, 2 = low. As with
-- keys that have limits, such a job is detached: it has progress with each group from then on.
local APART = 10000000000000
-- Of each ten turns of a group one is that of the second class, and of each hundred one is that of the third, among the
-- classes that have jobs.
local SECOND_EVERY, THIRD_EVERY, THIRD_AT = 10, 100, 55

-- ranked_of(s, group): returns the key of the ZSET
local function ranked_of(s, group) return link_key(s, 'ranked:' .. group) end

-- rank_of(record): returns the rank of a job; of one whose record is gone as well
local function rank_of(record)
  local class = string.match(record or '', '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n\29\31]*\29(%l)')
  return class == 'h' and 0 or class == 'l' and 2 or 1
end

-- is_ranked(s, group, delivery): returns whether this delivery waits for its turn
local function is_ranked(s, group, delivery)
  local key = ranked_of(s, group)
  return redis.call('ZSCORE', key, delivery) and true or false
end

-- forget_turns(s, group): nothing waits for its turn in the group any more.
local function forget_turns(s, group)
  local key = ranked_of(s, group)
  redis.call('UNLINK', key)
end

-- forget_turn(s, group, delivery): this delivery does not wait for its turn any more.
local function forget_turn(s, group, delivery)
  local key = ranked_of(s, group)
  redis.call('ZREM', key, delivery)
end

-- has_turns(s, group): returns whether jobs wait for their turn in the group, or have waited and are gone
local function has_turns(s, group)
  local key = ranked_of(s, group)
  return redis.call('EXISTS', key) == 1
end

-- wait_for_turn(s, job, delivery): a job that is due waits for its turn in job.group. job.due: text
local function wait_for_turn(s, job, delivery)
  local key = ranked_of(s, job.group)
  redis.call('ZADD', key, string.format('%.0f', rank_of(job.record) * APART + job.due), delivery)
end

-- next_rank(turn, left): whose turn it is. left: how many jobs of each rank there are, {[rank] = number}
-- returns the rank; nil = there are none
local function next_rank(turn, left)
  local place = turn % SECOND_EVERY == 0 and 2 or turn % THIRD_EVERY == THIRD_AT and 3 or 1
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
    chosen[n] = first[rank][#first[rank] - left[rank] + 1]
    left[rank] = left[rank] - 1
  end
  return chosen, turn + most
end

-- promote(s, group, stream, most): adds the next jobs to ready:GROUP (stream), so that as many as `most` are unread there, and
-- one more: it wakes a consumer that waits.
local function promote(s, group, stream, most)
  if not has_turns(s, group) then return end
  redis.call('XPENDING', stream, group) -- ends the script with the usual error if there is no such group
  local room = most + 1 - #next_unread(stream, group, most + 1)
  if room <= 0 then return end
  local chosen, turn = in_turn(s, group, room)
  local key = ranked_of(s, group)
  redis.call('ZREM', key, unpack(chosen))
  for _, delivery in ipairs(chosen) do redis.call('XADD', stream, '*', 'j', delivery) end
  redis.call('HSET', s.settings, 'turn:' .. group, string.format('%.0f', turn))
end
