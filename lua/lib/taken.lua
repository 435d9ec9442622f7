-- Ids that are taken for longer than their jobs live: HASH `taken`, id -> text
--   over_ms|until_ms|latest_ms|noted_ms|nonce|created_ms|due_ms|times
-- over_ms    when none of the rest matters any more; the later of it and until_ms is the id's score in the ZSET
--            `taken_until`
-- until_ms   unique_for: no other job gets the id before; 0 = none; from AFTER_MS on: the job lives, and from its end on
--            the id is taken for what exceeds AFTER_MS
-- latest_ms  at_most: the job with this created_ms is not postponed beyond it; 0 = none
-- noted_ms   when this was written
-- nonce, created_ms, due_ms  of the last job that got the id
-- times      rate_of_id: when jobs got the id, 'ms,ms,', oldest first
local TAKEN = '^(%d+)|(%d+)|(%d+)|(%d+)|([^|]*)|(%d+)|(%d+)|(.*)$'
local KEPT_MS = 60000
local AFTER_MS = 1000000000000000

-- parse_taken(text): returns {over=, until_ms=, latest=, noted=, nonce=, created=, due=, times={ms, ...}}; nil = it
-- can't be read. An error here would end a claim half way.
local function parse_taken(text)
  local t, times = {times = {}}, nil
  t.over, t.until_ms, t.latest, t.noted, t.nonce, t.created, t.due, times = string.match(text, TAKEN)
  if not times then return nil end
  for _, name in ipairs({'over', 'until_ms', 'latest', 'noted', 'created', 'due'}) do t[name] = tonumber(t[name]) end
  for ms in string.gmatch(times, '%d+') do t.times[#t.times + 1] = tonumber(ms) end
  return t
end

-- keep_taken(s, id, t): writes what is known of a taken id.
local function keep_taken(s, id, t)
  local times = {}
  for i, ms in ipairs(t.times) do times[i] = string.format('%.0f,', ms) end
  redis.call('HSET', s.taken, id, string.format('%.0f|%.0f|%.0f|%.0f|%s|%.0f|%.0f|', t.over, t.until_ms, t.latest, s.now,
    t.nonce, t.created, t.due) .. table.concat(times))
  redis.call('ZADD', s.taken_until, string.format('%.0f', math.max(t.over, t.until_ms)), id)
end

-- forget_taken(s, id): forgets what was known of an id.
local function forget_taken(s, id)
  if redis.call('HDEL', s.taken, id) == 1 then redis.call('ZREM', s.taken_until, id) end
end

-- expire_taken(s): has both keys expire when all in them is over.
local function expire_taken(s)
  local last = redis.call('ZRANGE', s.taken_until, -1, -1, 'WITHSCORES')[2]
  if not last then return end
  for _, key in ipairs({s.taken, s.taken_until}) do
    if tonumber(last) >= AFTER_MS then redis.call('PERSIST', key)
    else redis.call('PEXPIRE', key, string.format('%.0f', math.max(1, tonumber(last) - s.now + KEPT_MS))) end
  end
end
