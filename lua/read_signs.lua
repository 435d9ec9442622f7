-- read_signs: when consumers gave their last signs of life. It changes nothing, but fails where they could give none.
-- keys: signs
-- ARGV[1] now_ms or ''
-- ARGV[2..] consumers
-- returns {now_ms, signed_ms, ...}: for each of them; '' = none is known
-- runs while its slot moves
-- flags: allow-oom
-- include: clock
redis.call('ZREM', signs, '') -- a write: refused by a replica, and while Redis refuses or delays writes
local out = {now_ms(ARGV[1])}
for i = 2, #ARGV, 1 do out[i] = redis.call('ZSCORE', signs, ARGV[i]) or '' end
return out
