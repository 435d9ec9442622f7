-- permit: grants jobs of a topic with a rate to become ready. There is one state for the whole topic, in its first
-- shard, so that the rate holds across shards, movers and restarts. After a grant of n jobs, the next one has to wait
-- for n / rate seconds. Unused permits are not saved up, and a lost grant makes the topic slower, never faster.
-- keys: settings
-- ARGV[1] now_ms or ''
-- ARGV[2] wanted; 0 asks when the next grant is possible
-- returns {granted, now_ms, free_ms}: granted is at most a twentieth of what the rate allows in a second (at least one
-- job); free_ms is the time of the next grant, at once if it is not in the future. Without a rate all is granted.
-- flags: allow-oom
-- include: clock, stored_format
local now, wanted = now_ms(ARGV[1]), tonumber(ARGV[2])
local topic = redis.call('HMGET', settings, 'rate', 'rate_at', 'format')
check_format(topic[3])
local rate = tonumber(topic[1] or 0)
if rate <= 0 then return {wanted, now, now} end

local portion = math.max(1, math.floor(rate / 20))
local free_at = tonumber(topic[2] or 0)
-- Further ahead than a grant ever sets it: the clock was set back, or the rate was slower.
if free_at > now + portion * 1000 / rate then free_at = now end
if free_at > now then return {0, now, math.ceil(free_at)} end
local granted = math.min(wanted, portion)
if granted > 0 then
  -- Times are whole milliseconds; give back the fraction of a millisecond that this grant waited too long.
  free_at = (now - free_at < 1 and free_at or now) + granted * 1000 / rate
  -- Removal first: a Redis at its memory limit refuses a script's first write if it adds, and jobs must go on then, too.
  redis.call('HDEL', settings, 'rate_at')
  redis.call('HSET', settings, 'rate_at', string.format('%.3f', free_at))
end
return {granted, now, math.ceil(free_at)}
