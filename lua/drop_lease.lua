-- drop_lease: held by the caller -> free. If another process holds it by now, nothing changes.
-- keys: mover
-- ARGV[1] name of the caller
-- returns 1 = it is free now; 0 = it was not the caller's
-- runs while its slot moves
-- flags: allow-oom
local name = ARGV[1]
if redis.call('GET', mover) ~= name then return 0 end
return redis.call('DEL', mover)
