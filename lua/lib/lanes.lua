-- Jobs with a key, in a topic that limits how many attempts of a key run at once (settings field `key_limit`; 0 = no
-- longer, until the lanes are empty), and maybe how many start in a time ('places/pace', pace: ms from a start to the
-- next). Such a job is detached from the start and has progress with each group. For each
-- group, it waits in the lane of its key until it gets one of the key's places. With a place it goes through the bucket
-- like a retry. It keeps the place until the group has ended the job, or its attempt has failed. A job that is not due
-- yet may have a place, so that only the bucket has to be watched; it gives way to an earlier one.
--   keyed   HASH  group\31id -> ticket: 'group\31key\31', due_ms (13 digits), sequence, id
--   lanes   ZSET  tickets of those that wait for a place; all scores are 0, so they are in the order of their texts
--   fronts  ZSET  tickets of those that have one; with a pace also \30ticket, until the job starts
--   crowds  ZSET  group\31key -> how many wait; \31key -> -1: the key is paused, it gives no places; \30group\31key ->
--                 minus the time in ms from which the next one may start, if there is a pace
-- With a pace, a job comes out of the bucket when it may start, and only a few of a key are there before. The next one
-- follows when one has started: so whatever happens to it, the lane goes on, and what comes late does not start in a heap.
local OUT_AT_ONCE, AT_OTHER_TIMES = 50, 2 -- for each lane
local LINED_UP_AT_ONCE = 100 -- groups × jobs in one call, new ones or those that get places
local LAG_MS = 50 -- what starts so much too late does not delay the next ones of its key

-- limits_of(k): returns the number of places of each key, and the pace, nil if there is none
-- k = {key_limit=}
local function limits_of(k)
  local places, pace = string.match(k.key_limit, '^(%d+)/?(.*)$')
  return tonumber(places), tonumber(pace)
end

-- key_in(text, from): reads the key in the rest of a record, which begins at this position of the text (with its ttr).
-- returns nil if the job has none
local function key_in(text, from)
  return string.match(text, '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n\31]*\31([^\n]+)\n', from)
end

-- key_of(record): returns the key of a job, nil if it has none
local function key_of(record) return key_in(record, string.match(record, '^[^\n]*\n[^\n]*\n()')) end

-- lane_in(ticket): returns its group and key as one text, its due time, sequence and id
local function lane_in(ticket)
  return string.match(ticket, '^([^\31]*\31[^\31]*)\31(' .. string.rep('%d', 13) .. ')(' .. string.rep('.', 12) .. ')(.*)$')
end

-- line_up(k, group, key, id, sequence, due): puts a job into the lane of its key. Its progress must have this sequence
-- and due time.
-- returns the lane, for advance
local function line_up(k, group, key, id, sequence, due)
  local lane = group .. '\31' .. key
  local ticket = lane .. '\31' .. string.format('%013.0f', due) .. sequence .. id
  redis.call('HSET', k.keyed, field_of(group, id), ticket)
  redis.call('ZADD', k.lanes, 0, ticket)
  redis.call('ZINCRBY', k.crowds, 1, lane)
  redis.call('HINCRBY', k.counts, 'aside:' .. group, 1)
  return lane
end

-- leave_lane(k, group, ticket): takes a job out of its lane.
local function leave_lane(k, group, ticket)
  redis.call('ZREM', k.lanes, ticket)
  local lane = lane_in(ticket)
  if tonumber(redis.call('ZINCRBY', k.crowds, -1, lane)) <= 0 then redis.call('ZREM', k.crowds, lane) end
  redis.call('HINCRBY', k.counts, 'aside:' .. group, -1)
end

-- free_from(k, lane, pace, now): returns from when on the next job of the lane may start. If that is further ahead than it is
-- ever set, the clock was set back, or the pace was another one.
local function free_from(k, lane, pace, now)
  local kept = redis.call('ZSCORE', k.crowds, '\30' .. lane)
  if not kept or -kept <= now + LAG_MS + pace then return kept and -kept or now end
  redis.call('ZADD', k.crowds, -now - pace, '\30' .. lane)
  return now + pace
end

-- let_out(k, group, ticket, pace, now): gives the job a place of its key.
-- k = {places_given=}
local function let_out(k, group, ticket, pace, now)
  local lane, due, sequence, id = lane_in(ticket)
  local head, at = head_ms(k.bucket), tonumber(due)
  leave_lane(k, group, ticket)
  redis.call('ZADD', k.fronts, 0, ticket)
  if pace then
    local before = redis.call('ZLEXCOUNT', k.fronts, '[\30' .. lane .. '\31', '(\30' .. ticket)
    at = math.max(at, math.ceil(free_from(k, lane, pace, now) + before * pace))
    redis.call('ZADD', k.fronts, 0, '\30' .. ticket)
  end
  redis.call('ZADD', k.bucket, at, member(sequence, group, id))
  redis.call('HINCRBY', k.counts, 'waiting:' .. group, 1)
  k.places_given = (k.places_given or 0) + 1
  if not head or at < head then ring(k.wake, at) end
end

-- are_enough_given(k): returns whether this call has given enough places
-- k = {places_given=}
local function are_enough_given(k) return (k.places_given or 0) >= LINED_UP_AT_ONCE end

-- is_paused(k, lane): returns whether the lane's key is paused, by pause_key
local function is_paused(k, lane) return redis.call('ZSCORE', k.crowds, string.match(lane, '\31.*$')) end

-- set_aside(k, group, ticket): a job that is ready loses its place, though it is due; the caller removes its entry.
-- returns its sequence in its lane, which its progress must have from now on, and its due time there
local function set_aside(k, group, ticket)
  local lane, due, sequence = lane_in(ticket)
  redis.call('ZREM', k.fronts, ticket, '\30' .. ticket)
  redis.call('ZADD', k.lanes, 0, ticket)
  redis.call('ZINCRBY', k.crowds, 1, lane)
  redis.call('HINCRBY', k.counts, 'aside:' .. group, 1)
  return sequence, string.format('%.0f', due)
end

-- goes_back(k, group, ticket, now): a job loses its place, if it is not due yet, or may not start yet. Then it is in the
-- bucket, where it was put when it got the place; otherwise it stays.
-- returns whether it did
local function goes_back(k, group, ticket, now)
  local _, at, sequence, id = lane_in(ticket)
  local delivery = member(sequence, group, id)
  if redis.call('ZSCORE', k.fronts, '\30' .. ticket) then at = redis.call('ZSCORE', k.bucket, delivery) or 0 end
  if tonumber(at) <= now or redis.call('ZREM', k.bucket, delivery) == 0 then return false end
  redis.call('HINCRBY', k.counts, 'waiting:' .. group, -1)
  set_aside(k, group, ticket)
  return true
end

-- order_of(ticket): returns what decides which of two jobs of a key comes first
local function order_of(ticket)
  local _, due, sequence = lane_in(ticket)
  return due .. sequence
end

-- pull_back(k, group, lane, now): takes places away from jobs of a lane that has more than its limit, as far as they are
-- not due yet, the last first.
-- k = {key_limit=}
-- returns whether there may be more to take; then call it again
local function pull_back(k, group, lane, now)
  local from, to, limit = '[' .. lane .. '\31', '(' .. lane .. '\32', limits_of(k)
  local over = limit > 0 and redis.call('ZLEXCOUNT', k.fronts, from, to) - limit or 0
  for _ = 1, math.min(over, OUT_AT_ONCE) do
    local last = redis.call('ZREVRANGEBYLEX', k.fronts, to, from, 'LIMIT', 0, 1)[1]
    if not goes_back(k, group, last, now) then return false end
  end
  return over > OUT_AT_ONCE
end

-- is_full(k, lane, taken, limit, pace): returns whether no place of the lane can be given, because as many are taken, or
-- have not started yet
local function is_full(k, lane, taken, limit, pace)
  if limit > 0 and taken >= limit then return true end
  if not pace then return false end
  local unbegun = redis.call('ZLEXCOUNT', k.fronts, '[\30' .. lane .. '\31', '(\30' .. lane .. '\32')
  return unbegun >= math.max(1, math.floor(LAG_MS / pace))
end

-- advance(k, group, lane, now, at_once): gives the first jobs of a lane the places that are free, or belong to later jobs
-- that are not due yet. Call it when a job has come into the lane, or has lost its place, or has started: then there is one
-- place to give, or more while open_lanes applies a higher limit.
-- k = {key_limit=, places_given=}
-- returns whether there may be more than at_once to give; then call it again
local function advance(k, group, lane, now, at_once)
  local from, to, taken, limit, pace = '[' .. lane .. '\31', '(' .. lane .. '\32', nil, limits_of(k)
  local mark = pace and '\30' or ''
  for given = 1, at_once or AT_OTHER_TIMES do
    local first = redis.call('ZRANGEBYLEX', k.lanes, from, to, 'LIMIT', 0, 1)[1]
    if not first or given == 1 and is_paused(k, lane) then return false end
    taken = taken or limit > 0 and redis.call('ZLEXCOUNT', k.fronts, from, to) or -1
    -- More than the limit, which was lowered: they were due, and the clock was set back.
    if taken > limit and limit > 0 and given == 1 then pull_back(k, group, lane, now) end
    if not is_full(k, lane, taken, limit, pace) then
      taken = taken + 1
    elseif given == 1 or at_once then
      local last = redis.call('ZREVRANGEBYLEX', k.fronts, '(' .. mark .. lane .. '\32', '[' .. mark .. lane .. '\31',
        'LIMIT', 0, 1)[1]
      last = last and string.sub(last, #mark + 1)
      if not last or order_of(last) <= order_of(first) or not goes_back(k, group, last, now) then return false end
    else
      return false
    end
    let_out(k, group, first, pace, now)
  end
  return not pace -- at_once is as many as are out before they start
end

-- leave_key(k, group, id): the job needs no place any more. Idempotent, also for jobs that never needed one.
-- returns its lane, nil if it had none, and whether it waited there
local function leave_key(k, group, id)
  local ticket = redis.call('HGET', k.keyed, field_of(group, id))
  if not ticket then return nil end
  redis.call('HDEL', k.keyed, field_of(group, id))
  local waited = redis.call('ZREM', k.fronts, ticket, '\30' .. ticket) == 0
  if waited then leave_lane(k, group, ticket) end
  return lane_in(ticket), waited
end

-- free_place(k, group, id, now): the group has ended the job, or its attempt: the next one of its key gets its place.
-- Without k.key_limit there are no places.
-- k = {key_limit=, places_given=}
-- returns whether it waited for a place itself
local function free_place(k, group, id, now)
  if not k.key_limit then return false end
  local lane, waited = leave_key(k, group, id)
  if lane then advance(k, group, lane, now) end
  return waited
end

-- lose(k, group, id, now): forgets the group's progress with a job whose record is gone.
-- k = {key_limit=, places_given=}
local function lose(k, group, id, now)
  redis.call('HDEL', k.progress, field_of(group, id))
  free_place(k, group, id, now)
end

-- enter(k, groups, id, key, order, due, now): nothing -> waiting for a place of the key, a new job with this sequence.
-- k = {key_limit=, lined_up=, places_given=}
-- returns whether this call has entered enough jobs
local function enter(k, groups, id, key, order, due, now)
  redis.call('HINCRBY', k.counts, 'detached', 1)
  for _, group in ipairs(groups) do
    local text = string.format('%.0f', due)
    redis.call('HSET', k.progress, field_of(group, id), 'w|0|0|0|-|' .. order .. '|||' .. text .. '|')
    advance(k, group, line_up(k, group, key, id, order, due), now)
  end
  k.lined_up = (k.lined_up or 0) + #groups
  return k.lined_up >= LINED_UP_AT_ONCE
end

-- is_aside(k, group, id): returns whether the job waits in the lane of its key
local function is_aside(k, group, id)
  local ticket = redis.call('HGET', k.keyed, field_of(group, id))
  return ticket and redis.call('ZSCORE', k.lanes, ticket)
end
