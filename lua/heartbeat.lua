-- heartbeat: a consumer sends a heartbeat. About the latest 10 000 are kept, for a day after the last.
-- keys: heartbeats
-- ARGV[1] now_ms or ''
-- ARGV[2] consumer
-- returns now_ms
-- runs while its slot moves
-- flags: allow-oom
-- include: clock
local MOST, KEPT_MS = 10000, 86400000
local now = now_ms(ARGV[1])
-- Removal first: a Redis at its memory limit refuses a script whose first write adds data, and nobody is dead for that.
redis.call('ZREMRANGEBYRANK', heartbeats, 0, -1 - MOST)
redis.call('ZADD', heartbeats, string.format('%.0f', now), ARGV[2])
redis.call('PEXPIRE', heartbeats, KEPT_MS)
return now
