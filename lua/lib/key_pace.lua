-- include: key_tickets

-- The pace of keys: how many ms are between two starts of a key, for each group (`key_rate`). In the settings field
-- `key_limit` it stands behind a slash, '5/200'. How many jobs of a key run at once is in key_limit.lua. That file admits
-- jobs, and asks this one only whether enough admitted jobs have yet to start, and when the next one may start.
-- An admitted job is in the bucket until it may start. Only as many are admitted before they start as may start within
-- LATE_MS. The next one is admitted when one of them has started, or ended without. So no job can stall its key, and jobs
-- don't burst after workers were away.
--   key_unstarted   ZSET  tickets of the admitted jobs that have not started; all scores are 0
--   key_next_start  ZSET  group_key -> from when on, ms, the next job may start
local LATE_MS = 50 -- a start that is this much too late does not delay the next ones of its key

-- pace_of(s): returns how many ms are between two starts of a key, nil if the topic has no pace
local function pace_of(s) return tonumber(string.match(s.key_limit, '/(.+)$')) end

-- next_start(s, group_key): returns from when on the next job of the key may start, in a topic with a pace. A time further
-- ahead than is ever set is from before the clock was set back, or from a slower pace.
local function next_start(s, group_key)
  local at, pace = tonumber(redis.call('ZSCORE', s.key_next_start, group_key) or nil), pace_of(s)
  if not at or at <= s.now + LATE_MS + pace then return at or s.now end
  redis.call('ZADD', s.key_next_start, s.now + pace, group_key)
  return s.now + pace
end

-- reserve_start(s, ticket): notes that an admitted job has yet to start, in a topic with a pace.
-- returns when it may start
local function reserve_start(s, ticket)
  local group_key, due = parse_ticket(ticket)
  local before = redis.call('ZLEXCOUNT', s.key_unstarted, '[' .. group_key .. '\31', '(' .. ticket)
  local at = math.ceil(next_start(s, group_key) + before * pace_of(s))
  redis.call('ZADD', s.key_unstarted, 0, ticket)
  return math.max(tonumber(due), at)
end

-- has_unstarted(s, group_key): returns whether as many admitted jobs of the key have yet to start as there may be; false if
-- the topic has no pace
local function has_unstarted(s, group_key)
  local pace = pace_of(s)
  return pace ~= nil and count_tickets(s.key_unstarted, group_key) >= math.max(1, math.floor(LATE_MS / pace))
end

-- is_unstarted(s, ticket): returns whether an admitted job has yet to start; it was admitted while the topic had a pace
local function is_unstarted(s, ticket) return redis.call('ZSCORE', s.key_unstarted, ticket) and true or false end

-- forget_unstarted(s, ticket): an admitted job is none of those any more that have yet to start.
-- returns whether it was one
local function forget_unstarted(s, ticket) return redis.call('ZREM', s.key_unstarted, ticket) == 1 end

-- too_early(s, ticket): returns from when on a job that is about to start may do so, if that is not yet; in a topic with a
-- pace
local function too_early(s, ticket)
  local at = math.ceil(next_start(s, (parse_ticket(ticket))))
  return at - LATE_MS > s.now and at
end

-- note_start(s, ticket): a job starts, in a topic with a pace: the next one of its key may start a pace later.
-- returns whether the job had yet to start: then the next one can be admitted
local function note_start(s, ticket)
  local group_key = parse_ticket(ticket)
  local at = math.max(next_start(s, group_key), s.now - LATE_MS) + pace_of(s)
  redis.call('ZADD', s.key_next_start, string.format('%.3f', at), group_key)
  local idle = redis.call('ZRANGEBYSCORE', s.key_next_start, '-inf', s.now - LATE_MS, 'LIMIT', 0, 2)
  if #idle > 0 then redis.call('ZREM', s.key_next_start, unpack(idle)) end
  return forget_unstarted(s, ticket)
end
