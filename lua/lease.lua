-- lease: free, or held by the caller -> held by the caller: which mover is at work. One held by another stays as it is.
-- KEYS[1] mover  STRING  the holder's name; expires
-- ARGV[1] name of the caller
-- ARGV[2] lease_ms
-- returns {held, left_ms}: held 1 = by the caller, now for lease_ms; 0 = by another, for left_ms more
local mover, name, lease_ms = KEYS[1], ARGV[1], ARGV[2]
local holder = redis.call('GET', mover)
if holder and holder ~= name then return {0, redis.call('PTTL', mover)} end
-- Removal first: a Redis at its memory limit refuses a script's first write if it adds, and due jobs must move then, too.
redis.call('DEL', mover)
redis.call('SET', mover, name, 'PX', lease_ms)
return {1, tonumber(lease_ms)}
