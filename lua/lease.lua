-- lease: free, or held by the caller -> held by the caller. A lease that another process holds stays as it is.
-- KEYS[1] mover  STRING  the holder's name; expires
-- ARGV[1] name of the caller
-- ARGV[2] lease_ms
-- returns {held, left_ms}: held 1 = by the caller, for lease_ms from now; 0 = by another process, for left_ms more
local mover, name, lease_ms = KEYS[1], ARGV[1], ARGV[2]
local holder = redis.call('GET', mover)
if holder and holder ~= name then return {0, redis.call('PTTL', mover)} end
-- Removal first: a Redis at its memory limit refuses a script whose first write adds data, and due jobs must move even
-- then.
redis.call('DEL', mover)
redis.call('SET', mover, name, 'PX', lease_ms)
return {1, tonumber(lease_ms)}
