-- try_breaker: when a receiver's breaker has been open for its time, lets one process make one trial call.
-- keys of the call: breakers
-- ARGV[1] now_ms or ''
-- ARGV[2] receiver
-- ARGV[3] hold_ms: how long no other process may try, in case the caller never reports the result
-- returns {answer, left_ms}: answer 0 = not open, 1 = the caller may try, 2 = another process tries, 3 = open;
-- left_ms: with 2 and 3, when to ask again
-- runs while its slot moves
-- include: clock
local receiver = ARGV[2]
local entry = redis.call('HGET', breakers, receiver)
if not entry then return {0, 0} end
local now = now_ms(ARGV[1])
local till, open, trying = string.match(entry, '^(%d+)|(%d+)|(%d)$')
if now < tonumber(till) then return {trying == '1' and 2 or 3, till - now} end
redis.call('HSET', breakers, receiver, string.format('%.0f|%s|1', now + ARGV[3], open))
return {1, 0}
