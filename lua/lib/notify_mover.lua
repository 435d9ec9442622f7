-- head_ms(bucket): returns the earliest due time in the bucket, or nil
local function head_ms(bucket)
  return tonumber(redis.call('ZRANGE', bucket, '0', '0', 'WITHSCORES')[2])
end

-- notify_mover(wake, due_ms): has the mover look at this shard, because a job is due earlier than it knows of, because
-- claims or ready jobs have to be watched (reclaim), or because settings have changed. One entry is kept: it is a hint.
local function notify_mover(wake, due_ms)
  redis.call('XADD', wake, 'MAXLEN', '1', '*', 'due', string.format('%.0f', due_ms))
end

-- is_watched(until_ms, now): whether the mover checks the shard's claims in any case until then (reclaim). A time
-- further ahead than reclaim ever sets was written before the clock was set back.
-- returns true or false
local function is_watched(until_ms, now)
  local ahead = tonumber(until_ms or 0) - now
  return ahead >= 0 and ahead <= 10000
end
