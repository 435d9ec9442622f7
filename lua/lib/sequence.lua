-- Sequence numbers: 12 hex digits, so that text order is the order of making. A first delivery carries its job's number
-- among all that were enqueued; a later one (retry, reschedule, kick) counts on its own behind an 'f', so that no two
-- deliveries of a job ever carry the same.
-- first_order(number): of a first delivery. reserve(counts, n): n numbers for later ones, returns the one before them.
-- later_order(number): of a later delivery.
local function first_order(number)
  return string.format('%012x', number)
end
local function reserve(counts, n)
  return redis.call('HINCRBY', counts, 'sequence', n) - n
end
local function later_order(number)
  return string.format('f%011x', number)
end
