-- read_heartbeats: when consumers sent their last heartbeats. It changes nothing, but fails where they could give none.
-- keys: heartbeats
-- ARGV[1] now_ms or ''
-- ARGV[2..] consumers
-- returns {now_ms, heartbeat_ms, ...}: for each of them; '' = none is known
-- runs while its slot moves
-- flags: allow-oom
-- include: clock
redis.call('ZREM', heartbeats, '') -- a write: refused by a replica, and while Redis refuses or delays writes
local out = {now_ms(ARGV[1])}
for i = 2, #ARGV, 1 do out[i] = redis.call('ZSCORE', heartbeats, ARGV[i]) or '' end
return out
