-- open_breaker: stops callbacks to a receiver in every process. The process that found it dead, or still dead, calls
-- it.
-- keys of the call: breakers
-- ARGV[1] now_ms or ''
-- ARGV[2] receiver
-- ARGV[3] open_ms: for how long, from now
-- ARGV[4] keep_ms: how much longer to remember that it was open
-- ARGV[5] most: how many receivers are kept
-- returns 1, or 0 = there are too many; nothing was written
-- runs while its slot moves
-- include: clock
local now, receiver, open, keep, most = now_ms(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local all, known, others, over = redis.call('HGETALL', breakers), false, 0, {}
for i = 1, #all, 2 do
  if all[i] == receiver then known = true
  elseif tonumber(string.match(all[i + 1], '^%d+')) + keep < now then over[#over + 1] = all[i]
  else others = others + 1 end
end
if not known and others >= most then return 0 end
redis.call('HSET', breakers, receiver, string.format('%.0f|%.0f|0', now + open, open))
if #over > 0 then redis.call('HDEL', breakers, unpack(over)) end
redis.call('PEXPIRE', breakers, math.max(open + keep, redis.call('PTTL', breakers)))
return 1
