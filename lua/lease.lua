-- lease: free, or held by the caller -> held by the caller. A lease that another process holds for longer than lease_ms
-- ends by then unless its holder renews it; the mover at work is told of it.
-- keys of the call: mover
-- keys, if given: asked
-- ARGV[1] name of the caller
-- ARGV[2] lease_ms
-- returns {held, left_ms, asked}: held 1 = by the caller, for lease_ms from now; 0 = by another process, for left_ms
-- more; asked 1 = that was longer
-- runs while its slot moves
-- flags: allow-oom
local name, lease_ms = ARGV[1], tonumber(ARGV[2])
local holder = redis.call('GET', mover)
if holder and holder ~= name then
  local left_ms = redis.call('PTTL', mover)
  if left_ms >= 0 and left_ms <= lease_ms then return {0, left_ms, 0} end
  redis.call('PEXPIRE', mover, lease_ms)
  if asked then redis.call('XADD', asked, 'MAXLEN', 1, '*', 'by', name) end
  return {0, lease_ms, 1}
end
-- This first: a Redis at its memory limit refuses a script whose first write adds data, and due jobs must move even then.
redis.call('PEXPIRE', mover, lease_ms)
redis.call('SET', mover, name, 'PX', lease_ms)
return {1, lease_ms, 0}
