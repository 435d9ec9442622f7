-- Sequence numbers: 12 hex digits, so that text order is the order of creation. A first delivery has its job's number
-- among all enqueued jobs; a later one (retry, reschedule, kick) has an 'f' and a number from another counter, so that
-- no two deliveries of a job ever have the same sequence.

-- first_order(number): returns the sequence of a first delivery
local function first_order(number)
  return string.format('%012x', number)
end

-- reserve(counts, n): takes n numbers for later deliveries.
-- returns the number before them
local function reserve(counts, n)
  return redis.call('HINCRBY', counts, 'sequence', n) - n
end

-- later_order(number): returns the sequence of a later delivery
local function later_order(number)
  return string.format('f%011x', number)
end

-- numbers_now(counts): returns the last sequences of both kinds, one after the other
local function numbers_now(counts)
  local both = redis.call('HMGET', counts, 'enqueued', 'sequence')
  return first_order(tonumber(both[1] or 0)) .. later_order(tonumber(both[2] or 0))
end
