-- next_sequence(counts, n): reserves n sequence numbers, returns the one before the first.
-- hex(number): 12 digits, so that text order is numeric order; 2^48 outlast a century at 50 k jobs/s.
local function next_sequence(counts, n)
  return redis.call('HINCRBY', counts, 'sequence', n) - n
end
local function hex(number)
  return string.format('%012x', number)
end
