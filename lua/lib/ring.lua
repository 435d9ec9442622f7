-- head_ms(bucket): the earliest due time in the bucket, or nil.
-- ring(wake, due_ms): tells the mover of something earlier than it knows. One entry is kept: a ring is a hint.
-- is_watched(until_ms, now): whether somebody looks at the shard's claims by itself until then (reclaim). What is further
-- ahead than that ever is was written before the clock was set back.
local function head_ms(bucket)
  local head = redis.call('ZRANGE', bucket, 0, 0, 'WITHSCORES')
  return head[2] and tonumber(head[2])
end
local function ring(wake, due_ms)
  redis.call('XADD', wake, 'MAXLEN', 1, '*', 'due', string.format('%.0f', due_ms))
end
local function is_watched(until_ms, now)
  local ahead = tonumber(until_ms or 0) - now
  return ahead >= 0 and ahead <= 10000
end
