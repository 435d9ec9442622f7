-- restore: archived -> ready, for one group; the retry schedule starts again, the number of attempts continues. Other
-- groups don't get the job. Idempotent.
-- keys: bucket, jobs, progress, counts, settings, history, archive, wake, key_tickets, key_waiting, key_admitted,
--   key_unstarted, key_counts, key_paused, key_next_start, taken
-- keys of the group: own
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] history cap
-- ARGV[4] how jobs are spread, as lib/is_current.lua takes it
-- ARGV[5] 'former' = the ids were at home here before the number of shards changed, and stay as long as there is anything
-- of them; ''
-- ARGV[6..] per job: id, receipt, attempt, due_ms, rest of the record from created_ms on
-- returns {status, code, ...}: status 1 = done, 0 = the caller's settings of the topic are out of date, or the group
-- does not exist, nothing was written; code 1 = ready, now or by an earlier call that left its receipt; 0 = the id is
-- live; -1 = there is nothing of a former id here
-- include: archived, clock, go_on, groups, history, is_current, largest, progress, requeue, results, sequence,
--   stored_format, waits
local group, former = ARGV[2], ARGV[5] == 'former'
local topic = redis.call('HMGET', settings, 'shards', 'groups', 'paused', 'rate', 'largest', 'format', 'key_limit',
  'sharded_by_key', 'results', 'linked')
check_format(topic[6])
local others, served = {}, false
for _, name in ipairs(names(topic[2])) do
  if name == group then served = true else others[#others + 1] = name end
end
if not is_current(topic[1], topic[8], ARGV[4]) or not served then return {0} end
local s = shard(KEYS)
s.now, s.history_cap, s.key_limit = now_ms(ARGV[1]), ARGV[3], topic[7]
s.results, s.linked, s.groups = results_in(topic[9]), topic[10], names(topic[2])
s.waits = waits(topic[3], topic[4])

-- Other groups may still have the job; then it only comes back to this group.
local SAME = '^(%d+\n%d*\n%d*\n[^\n]*)\n' -- created, ttr, expire, nonce
local function place(id, record)
  redis.call('HSET', jobs, id, record)
  redis.call('HINCRBY', counts, 'detached', 1)
  return '-'
end
local function return_to(id, rest, held)
  if string.match(held, SAME, string.find(held, '\n') + 1) ~= string.match(rest, SAME) then return nil end
  local p = parse(redis.call('HGET', progress, field_of(group, id)))
  if p then
    return p.state == 'x' and p.main or nil
  end
  for _, other in ipairs(others) do -- it came back for another group before
    local theirs = parse(redis.call('HGET', progress, field_of(other, id)))
    if theirs and theirs.main == '-' then return '-' end
  end
end

-- A job that this Redis archived no longer counts as dead. A job from elsewhere is new here, and only for this group.
local function account()
  if tonumber(redis.call('HGET', counts, 'archived:' .. group) or 0) > 0 then
    redis.call('HINCRBY', counts, 'archived:' .. group, -1)
    redis.call('HINCRBY', counts, 'dead:' .. group, -1)
    return
  end
  redis.call('HINCRBY', counts, 'enqueued', 1)
  for _, other in ipairs(others) do redis.call('HINCRBY', counts, 'base:' .. other, 1) end
end

local sequence, reply, rows, longest = reserve(counts, (#ARGV - 5) / 5), {1}, {}, 0
for i = 6, #ARGV, 5 do
  local id, receipt, due, rest, code = ARGV[i], ARGV[i + 1], ARGV[i + 3], ARGV[i + 4], 1
  if redis.call('HEXISTS', archive, receipt) == 0 then
    sequence = sequence + 1
    local order, held = later_order(sequence), redis.call('HGET', jobs, id)
    local record = order .. due .. '\n' .. rest
    local is_elsewhere, main = former and not held and redis.call('HEXISTS', taken, id) == 0, nil
    if held then main = return_to(id, rest, held) elseif not is_elsewhere then main = place(id, record) end
    if main then
      longest = math.max(longest, #record)
      local p = fresh(order, main)
      p.attempt = ARGV[i + 2]
      account()
      local job = {group = group, id = id, record = record, progress = p}
      forget_result(s, job)
      go_on(s, job)
      job_returns(s, job, life_of(redis.call('HGET', jobs, id)))
      redis.call('HSET', archive, receipt, 1)
      rows[#rows + 1] = rare_row(s, 'kicked', job, {due = p.deadline})
    else
      code = is_elsewhere and -1 or 0
    end
  end
  reply[#reply + 1] = code
end
note_largest(settings, topic[5], longest)
if former and #rows > 0 then redis.call('HINCRBY', settings, 'former_puts', 1) end
remember(s, rows)
return reply
