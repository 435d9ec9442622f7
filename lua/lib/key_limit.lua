-- include: key_pace, key_tickets, notify_mover, progress

-- The limit of keys: how many jobs of a key run at once, for each group (`key_concurrency`). The settings field `key_limit`
-- begins with it; 0 = any number. The field is '0' as long as jobs may wait though the topic has no limit any more.
-- Here a job with a key is detached from the start and has progress with each group. For each group it waits until it is
-- admitted: as many jobs of a group and key are admitted as the limit allows. An admitted job goes through the bucket like
-- a retry. It stays admitted until the group has ended the job, or its attempt has failed. A job that is not due yet may
-- be admitted, so only the bucket has to be watched; then it makes room for an earlier one. A pace (key_pace.lua) may
-- have fewer jobs admitted.
--   key_tickets   HASH  group\31id -> ticket (key_tickets.lua)
--   key_waiting   ZSET  tickets of the jobs that wait; all scores are 0
--   key_counts    ZSET  group_key -> how many wait
--   key_admitted  ZSET  tickets of the admitted jobs; all scores are 0
--   key_paused    ZSET  keys that admit no job (pause_key); all scores are 0
local ADMIT_MANY, ADMIT_FEW = 50, 2 -- jobs of one group and key
local ADMITTED_PER_CALL = 100 -- groups × jobs that one call adds, or admits

-- limit_of(s): returns how many jobs of a key run at once, 0 = any number
local function limit_of(s) return tonumber(string.match(s.key_limit, '^%d+')) end

-- is_paused(s, group_key): returns whether the key is paused
local function is_paused(s, group_key)
  return redis.call('ZSCORE', s.key_paused, string.match(group_key, '\31(.*)$')) and true or false
end

-- start_waiting(s, ticket): a job waits for its key.
local function start_waiting(s, ticket)
  local group_key = parse_ticket(ticket)
  redis.call('ZADD', s.key_waiting, 0, ticket)
  redis.call('ZINCRBY', s.key_counts, 1, group_key)
  redis.call('HINCRBY', s.counts, 'waiting_for_key:' .. group_of(group_key), 1)
end

-- stop_waiting(s, ticket): a job does not wait for its key any more.
local function stop_waiting(s, ticket)
  local group_key = parse_ticket(ticket)
  redis.call('ZREM', s.key_waiting, ticket)
  if tonumber(redis.call('ZINCRBY', s.key_counts, -1, group_key)) <= 0 then redis.call('ZREM', s.key_counts, group_key) end
  redis.call('HINCRBY', s.counts, 'waiting_for_key:' .. group_of(group_key), -1)
end

-- admit(s, ticket): waiting -> admitted: the job is in the bucket until it is due, and may start.
local function admit(s, ticket)
  local group_key, due, sequence, id = parse_ticket(ticket)
  local group, head, at = group_of(group_key), head_ms(s.bucket), tonumber(due)
  stop_waiting(s, ticket)
  redis.call('ZADD', s.key_admitted, 0, ticket)
  if pace_of(s) then at = reserve_start(s, ticket) end
  redis.call('ZADD', s.bucket, at, member(sequence, group, id))
  redis.call('HINCRBY', s.counts, 'waiting:' .. group, 1)
  s.admitted = (s.admitted or 0) + 1
  if not head or at < head then notify_mover(s.wake, at) end
end

-- has_admitted_enough(s): returns whether this call has admitted as many jobs as one call should
local function has_admitted_enough(s) return (s.admitted or 0) >= ADMITTED_PER_CALL end

-- demote(s, ticket): admitted -> waiting, a job that is ready, though it is due; the caller removes its entry.
-- returns the sequence that its progress must have from now on, and its due time
local function demote(s, ticket)
  local _, due, sequence = parse_ticket(ticket)
  -- In this order: what has yet to start keeps others of its key back, so it must be an admitted job.
  forget_unstarted(s, ticket)
  redis.call('ZREM', s.key_admitted, ticket)
  start_waiting(s, ticket)
  return sequence, string.format('%.0f', due)
end

-- try_demote(s, ticket): admitted -> waiting, a job that is not due yet, or may not start yet. Then it is in the bucket,
-- where it was put when it was admitted; otherwise nothing changes.
-- returns whether it waits now
local function try_demote(s, ticket)
  local group_key, at, sequence, id = parse_ticket(ticket)
  local group = group_of(group_key)
  local delivery = member(sequence, group, id)
  if is_unstarted(s, ticket) then at = redis.call('ZSCORE', s.bucket, delivery) or 0 end
  if tonumber(at) <= s.now or redis.call('ZREM', s.bucket, delivery) == 0 then return false end
  redis.call('HINCRBY', s.counts, 'waiting:' .. group, -1)
  demote(s, ticket)
  return true
end

-- order_of(ticket): returns what decides which of two jobs of a key comes first
local function order_of(ticket)
  local _, due, sequence = parse_ticket(ticket)
  return due .. sequence
end

-- demote_later(s, ticket): admitted -> waiting, the last admitted job of the key, if it is later than this one.
-- returns whether there is room for this one now
local function demote_later(s, ticket)
  local last = last_tickets(pace_of(s) and s.key_unstarted or s.key_admitted, (parse_ticket(ticket)), 1)[1]
  return last ~= nil and order_of(last) > order_of(ticket) and try_demote(s, last)
end

-- enforce_limit(s, group_key): admitted -> waiting, jobs beyond the limit, the last first, as far as they are not due yet.
-- returns whether there may be more; then call it again
local function enforce_limit(s, group_key)
  local limit = limit_of(s)
  local over = limit > 0 and count_tickets(s.key_admitted, group_key) - limit or 0
  for _ = 1, math.min(over, ADMIT_MANY) do
    if not try_demote(s, last_tickets(s.key_admitted, group_key, 1)[1]) then return false end
  end
  return over > ADMIT_MANY
end

-- is_full(s, group_key, admitted): returns whether no job of the key can be admitted beside those that are. admitted: how
-- many these are; it does not matter without a limit.
local function is_full(s, group_key, admitted)
  local limit = limit_of(s)
  return limit > 0 and admitted >= limit or has_unstarted(s, group_key)
end

-- admit_next(s, group_key, most): waiting -> admitted, the first jobs of the key, as far as there is room, or later ones that
-- are not due yet make room. Call it when a job has begun to wait, when an admitted one has ended or failed, and when one has
-- started: then there is room for one, or more while apply_key_limit applies a higher limit. most: nil = ADMIT_FEW.
-- returns whether there may be more than `most` to admit; then call it again
local function admit_next(s, group_key, most)
  local admitted, limit = 0, limit_of(s)
  for n = 1, most or ADMIT_FEW do
    local first = first_ticket(s.key_waiting, group_key)
    if not first or n == 1 and is_paused(s, group_key) then return false end
    if n == 1 and limit > 0 then
      admitted = count_tickets(s.key_admitted, group_key)
      -- The limit was lowered while these were due, and the clock was set back since.
      if admitted > limit then enforce_limit(s, group_key) end
    end
    if not is_full(s, group_key, admitted) then
      admitted = admitted + 1
    elseif n > 1 and not most or not demote_later(s, first) then
      return false
    end
    admit(s, first)
  end
  return not pace_of(s) -- with a pace, fewer than `most` are admitted before they start
end

-- enqueue_key(s, group, key, delivery): a job waits for its key, or is admitted at once. delivery = {id=, sequence=, due=},
-- as its progress has them.
local function enqueue_key(s, group, key, delivery)
  local ticket = format_ticket(group, key, delivery)
  redis.call('HSET', s.key_tickets, field_of(group, delivery.id), ticket)
  start_waiting(s, ticket)
  admit_next(s, (parse_ticket(ticket)))
end

-- drop_ticket(s, group, id): the job neither waits for its key nor is admitted any more. Idempotent, also for jobs that never
-- had a ticket.
-- returns its group_key, nil if it had no ticket; and whether it waited
local function drop_ticket(s, group, id)
  local ticket = redis.call('HGET', s.key_tickets, field_of(group, id))
  if not ticket then return nil end
  redis.call('HDEL', s.key_tickets, field_of(group, id))
  forget_unstarted(s, ticket)
  local waited = redis.call('ZREM', s.key_admitted, ticket) == 0
  if waited then stop_waiting(s, ticket) end
  return parse_ticket(ticket), waited
end

-- release_key(s, group, id): the group has ended the job, or its attempt: the next one of its key is admitted. Without
-- s.key_limit no job waits.
-- returns whether the job itself waited for its key
local function release_key(s, group, id)
  if not s.key_limit then return false end
  local group_key, waited = drop_ticket(s, group, id)
  if group_key then admit_next(s, group_key) end
  return waited
end

-- forget_lost(s, group, id): forgets the group's progress with a job whose record is gone.
local function forget_lost(s, group, id)
  redis.call('HDEL', s.progress, field_of(group, id))
  release_key(s, group, id)
end

-- has_added_enough(s): returns whether this call has added as many jobs with keys as one call should
local function has_added_enough(s) return (s.added or 0) >= ADMITTED_PER_CALL end

-- add(s, groups, key, delivery): nothing -> waiting, a new job with a key. delivery = {id=, sequence=, due=}
-- returns whether this call has added as many jobs with keys as one call should
local function add(s, groups, key, delivery)
  redis.call('HINCRBY', s.counts, 'detached', 1)
  local progress = 'w|0|0|0|-|' .. delivery.sequence .. '|||' .. string.format('%.0f', delivery.due) .. '|'
  for _, group in ipairs(groups) do
    redis.call('HSET', s.progress, field_of(group, delivery.id), progress)
    enqueue_key(s, group, key, delivery)
  end
  s.added = (s.added or 0) + #groups
  return has_added_enough(s)
end

-- waits_for_key(s, group, id): returns the job's ticket if it waits for its key, otherwise nil
local function waits_for_key(s, group, id)
  local ticket = redis.call('HGET', s.key_tickets, field_of(group, id))
  return ticket and redis.call('ZSCORE', s.key_waiting, ticket) and ticket or nil
end
