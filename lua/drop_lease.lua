-- drop_lease: held by the caller -> free. If another process holds it by now, nothing changes.
-- KEYS[1] mover  STRING  the holder's name; expires
-- ARGV[1] name of the caller
-- returns 1 = it is free now; 0 = it was not the caller's
-- runs while its slot moves
local mover, name = KEYS[1], ARGV[1]
if redis.call('GET', mover) ~= name then return 0 end
return redis.call('DEL', mover)
