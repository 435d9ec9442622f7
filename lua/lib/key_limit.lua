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

-- limit_of(k): returns how many jobs of a key run at once, 0 = any number
local function limit_of(k) return tonumber(string.match(k.key_limit, '^%d+')) end

-- is_paused(k, group_key): returns whether the key is paused
local function is_paused(k, group_key)
  return redis.call('ZSCORE', k.key_paused, string.match(group_key, '\31(.*)$')) and true or false
end

-- start_waiting(k, ticket): a job waits for its key.
local function start_waiting(k, ticket)
  local group_key = parse_ticket(ticket)
  redis.call('ZADD', k.key_waiting, 0, ticket)
  redis.call('ZINCRBY', k.key_counts, 1, group_key)
  redis.call('HINCRBY', k.counts, 'waiting_for_key:' .. group_of(group_key), 1)
end

-- stop_waiting(k, ticket): a job does not wait for its key any more.
local function stop_waiting(k, ticket)
  local group_key = parse_ticket(ticket)
  redis.call('ZREM', k.key_waiting, ticket)
  if tonumber(redis.call('ZINCRBY', k.key_counts, -1, group_key)) <= 0 then redis.call('ZREM', k.key_counts, group_key) end
  redis.call('HINCRBY', k.counts, 'waiting_for_key:' .. group_of(group_key), -1)
end

-- admit(k, ticket): waiting -> admitted: the job is in the bucket until it is due, and may start.
local function admit(k, ticket)
  local group_key, due, sequence, id = parse_ticket(ticket)
  local group, head, at = group_of(group_key), head_ms(k.bucket), tonumber(due)
  stop_waiting(k, ticket)
  redis.call('ZADD', k.key_admitted, 0, ticket)
  if pace_of(k) then at = reserve_start(k, ticket) end
  redis.call('ZADD', k.bucket, at, member(sequence, group, id))
  redis.call('HINCRBY', k.counts, 'waiting:' .. group, 1)
  k.admitted = (k.admitted or 0) + 1
  if not head or at < head then ring(k.wake, at) end
end

-- has_admitted_enough(k): returns whether this call has admitted as many jobs as one call should
local function has_admitted_enough(k) return (k.admitted or 0) >= ADMITTED_PER_CALL end

-- demote(k, ticket): admitted -> waiting, a job that is ready, though it is due; the caller removes its entry.
-- returns the sequence that its progress must have from now on, and its due time
local function demote(k, ticket)
  local _, due, sequence = parse_ticket(ticket)
  -- In this order: what has yet to start keeps others of its key back, so it must be an admitted job.
  forget_unstarted(k, ticket)
  redis.call('ZREM', k.key_admitted, ticket)
  start_waiting(k, ticket)
  return sequence, string.format('%.0f', due)
end

-- try_demote(k, ticket): admitted -> waiting, a job that is not due yet, or may not start yet. Then it is in the bucket,
-- where it was put when it was admitted; otherwise nothing changes.
-- returns whether it waits now
local function try_demote(k, ticket)
  local group_key, at, sequence, id = parse_ticket(ticket)
  local group = group_of(group_key)
  local delivery = member(sequence, group, id)
  if is_unstarted(k, ticket) then at = redis.call('ZSCORE', k.bucket, delivery) or 0 end
  if tonumber(at) <= k.now or redis.call('ZREM', k.bucket, delivery) == 0 then return false end
  redis.call('HINCRBY', k.counts, 'waiting:' .. group, -1)
  demote(k, ticket)
  return true
end

-- order_of(ticket): returns what decides which of two jobs of a key comes first
local function order_of(ticket)
  local _, due, sequence = parse_ticket(ticket)
  return due .. sequence
end

-- demote_later(k, ticket): admitted -> waiting, the last admitted job of the key, if it is later than this one.
-- returns whether there is room for this one now
local function demote_later(k, ticket)
  local last = last_tickets(pace_of(k) and k.key_unstarted or k.key_admitted, (parse_ticket(ticket)), 1)[1]
  return last ~= nil and order_of(last) > order_of(ticket) and try_demote(k, last)
end

-- enforce_limit(k, group_key): admitted -> waiting, jobs beyond the limit, the last first, as far as they are not due yet.
-- returns whether there may be more; then call it again
local function enforce_limit(k, group_key)
  local limit = limit_of(k)
  local over = limit > 0 and count_tickets(k.key_admitted, group_key) - limit or 0
  for _ = 1, math.min(over, ADMIT_MANY) do
    if not try_demote(k, last_tickets(k.key_admitted, group_key, 1)[1]) then return false end
  end
  return over > ADMIT_MANY
end

-- is_full(k, group_key, admitted): returns whether no job of the key can be admitted beside those that are. admitted: how
-- many these are; it does not matter without a limit.
local function is_full(k, group_key, admitted)
  local limit = limit_of(k)
  return limit > 0 and admitted >= limit or has_unstarted(k, group_key)
end

-- admit_next(k, group_key, most): waiting -> admitted, the first jobs of the key, as far as there is room, or later ones that
-- are not due yet make room. Call it when a job has begun to wait, when an admitted one has ended or failed, and when one has
-- started: then there is room for one, or more while apply_key_limit applies a higher limit. most: nil = ADMIT_FEW.
-- returns whether there may be more than `most` to admit; then call it again
local function admit_next(k, group_key, most)
  local admitted, limit = 0, limit_of(k)
  for n = 1, most or ADMIT_FEW do
    local first = first_ticket(k.key_waiting, group_key)
    if not first or n == 1 and is_paused(k, group_key) then return false end
    if n == 1 and limit > 0 then
      admitted = count_tickets(k.key_admitted, group_key)
      -- The limit was lowered while these were due, and the clock was set back since.
      if admitted > limit then enforce_limit(k, group_key) end
    end
    if not is_full(k, group_key, admitted) then
      admitted = admitted + 1
    elseif n > 1 and not most or not demote_later(k, first) then
      return false
    end
    admit(k, first)
  end
  return not pace_of(k) -- with a pace, fewer than `most` are admitted before they start
end

-- enqueue_key(k, group, key, delivery): a job waits for its key, or is admitted at once. delivery = {id=, sequence=, due=},
-- as its progress has them.
local function enqueue_key(k, group, key, delivery)
  local ticket = format_ticket(group, key, delivery)
  redis.call('HSET', k.key_tickets, field_of(group, delivery.id), ticket)
  start_waiting(k, ticket)
  admit_next(k, (parse_ticket(ticket)))
end

-- drop_ticket(k, group, id): the job neither waits for its key nor is admitted any more. Idempotent, also for jobs that never
-- had a ticket.
-- returns its group_key, nil if it had no ticket; and whether it waited
local function drop_ticket(k, group, id)
  local ticket = redis.call('HGET', k.key_tickets, field_of(group, id))
  if not ticket then return nil end
  redis.call('HDEL', k.key_tickets, field_of(group, id))
  forget_unstarted(k, ticket)
  local waited = redis.call('ZREM', k.key_admitted, ticket) == 0
  if waited then stop_waiting(k, ticket) end
  return parse_ticket(ticket), waited
end

-- release_key(k, group, id): the group has ended the job, or its attempt: the next one of its key is admitted. Without
-- k.key_limit no job waits.
-- returns whether the job itself waited for its key
local function release_key(k, group, id)
  if not k.key_limit then return false end
  local group_key, waited = drop_ticket(k, group, id)
  if group_key then admit_next(k, group_key) end
  return waited
end

-- forget_lost(k, group, id): forgets the group's progress with a job whose record is gone.
local function forget_lost(k, group, id)
  redis.call('HDEL', k.progress, field_of(group, id))
  release_key(k, group, id)
end

-- has_added_enough(k): returns whether this call has added as many jobs with keys as one call should
local function has_added_enough(k) return (k.added or 0) >= ADMITTED_PER_CALL end

-- add(k, groups, key, delivery): nothing -> waiting, a new job with a key. delivery = {id=, sequence=, due=}
-- returns whether this call has added as many jobs with keys as one call should
local function add(k, groups, key, delivery)
  redis.call('HINCRBY', k.counts, 'detached', 1)
  local progress = 'w|0|0|0|-|' .. delivery.sequence .. '|||' .. string.format('%.0f', delivery.due) .. '|'
  for _, group in ipairs(groups) do
    redis.call('HSET', k.progress, field_of(group, delivery.id), progress)
    enqueue_key(k, group, key, delivery)
  end
  k.added = (k.added or 0) + #groups
  return has_added_enough(k)
end

-- waits_for_key(k, group, id): returns the job's ticket if it waits for its key, otherwise nil
local function waits_for_key(k, group, id)
  local ticket = redis.call('HGET', k.key_tickets, field_of(group, id))
  return ticket and redis.call('ZSCORE', k.key_waiting, ticket) and ticket or nil
end
