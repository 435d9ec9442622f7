-- fire: occurrence -> delayed, for schedules whose time comes soon, so that the jobs are in the bucket when they are due.
-- One that may have to wait for its predecessor is taken when it is due. Taking it from the plan and enqueuing its job are
-- one step, so no occurrence runs twice, and none is left out.
-- keys: schedules, ticks, jobs, bucket, progress, counts, settings, wake
-- ARGV[1] now_ms or ''
-- ARGV[2] how jobs are spread, as the caller knows it
-- ARGV[3] limit, of schedules and of jobs
-- ARGV[4] an occurrence that is later than this by ms is left to the planner, unless the planner has let it through
-- ARGV[5] in how many ms to look again at what waits for its predecessor, or for the planner
-- ARGV[6] by how many ms to enqueue a job before it is due
-- returns {status, now_ms, next_ms, skipped, jobs, unplanned}: status 1 = done, 0 = the caller's settings of the topic
-- are out of date, nothing was written; next_ms: when to call again, -1 = no occurrence to wait for; jobs: the ids of those
-- that were enqueued; unplanned: the ids of schedules that need a new plan
-- include: clock, groups, largest, notify_mover, results, schedule, sequence, stored_format
local now, shards, limit, late_after, again = now_ms(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local lead = tonumber(ARGV[6])

local topic = redis.call('HMGET', settings, 'shards', 'groups', 'leaving', 'largest', 'format', 'results')
check_format(topic[5])
if topic[1] ~= shards then return {0, now, -1, 0, {}, {}} end
local s = shard(KEYS)
s.groups, s.leaving, s.results = names(topic[2]), topic[3], results_in(topic[6])
local prefix = '\n' .. now .. '\n' -- 13 digits: Lua writes up to 14 in full
local head = head_ms(bucket)
local fired, unplanned, earliest, skipped, bytes, longest = {}, {}, nil, 0, 0, 0

local function skip(schedule) schedule.skipped, skipped = schedule.skipped + 1, skipped + 1 end

local function enqueue_occurrence(schedule, occurrence)
  local due, _, id, text = parse_occurrence(occurrence)
  if redis.call('HEXISTS', jobs, id) == 1 then return skip(schedule) end
  local order = first_order(redis.call('HINCRBY', counts, 'enqueued', 1))
  local record = order .. string.format('%.0f', due) .. prefix .. fill_in(schedule.job, text)
  redis.call('HSET', jobs, id, record)
  redis.call('ZADD', bucket, due, order .. id)
  forget_results(s, id)
  bytes = bytes + #record
  if #record > longest then longest = #record end
  if not earliest or due < earliest then earliest = due end
  schedule.fired = schedule.fired + 1
  if due > now then schedule.ahead = occurrence else schedule.previous = id end
  fired[#fired + 1] = id
end

local function offer(schedule, occurrence)
  if schedule.overlap == 'allow' or not is_open(s, schedule.previous) then
    enqueue_occurrence(schedule, occurrence)
  elseif schedule.overlap == 'queue' and schedule.held == '' then
    schedule.held = occurrence
  else
    skip(schedule)
  end
end

-- One of them at a time, and none that may have to wait: then this is decided when it is due.
local function is_free(schedule)
  return schedule.ahead == '' and (schedule.overlap == 'allow' or not is_open(s, schedule.previous))
end

-- Takes from the plan what is due, and what soon is. Returns whether a new plan is needed before anything else of it runs.
local function work_off(schedule)
  if schedule.shards ~= string.match(shards, '^%d+') then return true end
  advance_previous(schedule, now)
  if schedule.held ~= '' and not is_open(s, schedule.previous) then
    enqueue_occurrence(schedule, schedule.held)
    schedule.held = ''
  end
  while schedule.plan[1] and #fired + skipped < limit and not is_enough(bytes) do
    local due, time = parse_occurrence(schedule.plan[1])
    if due > now + lead then return false end
    schedule.must_wait = due > now and not is_free(schedule)
    if schedule.must_wait then return false end
    if now - due > late_after and due > tonumber(schedule.late_ms) then return true end
    schedule.last_ms = time
    offer(schedule, table.remove(schedule.plan, 1))
  end
  return #schedule.plan == 0 and schedule.more == '1'
end

local function next_look(schedule, stuck)
  local soon = string.format('%.0f', now + again)
  if stuck then return soon end
  local due = schedule.plan[1] and parse_occurrence(schedule.plan[1])
  if schedule.held ~= '' and not (due and due < tonumber(soon)) then return soon end
  if schedule.must_wait then return parse_occurrence(schedule.ahead) or due end
  return due and due - lead
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', ticks, '-inf', string.format('%.0f', now), 'LIMIT', 0, limit)) do
  local record = redis.call('HGET', schedules, id)
  if not record then
    redis.call('ZREM', ticks, id)
  else
    local schedule = parse_schedule(record)
    local stuck = work_off(schedule)
    local look = next_look(schedule, stuck)
    if look then
      redis.call('ZADD', ticks, look, id)
    else
      schedule.state = 'ended'
      redis.call('ZREM', ticks, id)
    end
    redis.call('HSET', schedules, id, format_schedule(schedule))
    if stuck or (#schedule.plan < 2 and schedule.more == '1') then unplanned[#unplanned + 1] = id end
    bytes = bytes + #record
  end
  if #fired + skipped >= limit or is_enough(bytes) then break end
end

note_largest(settings, topic[4], longest)
if earliest and (not head or earliest < head) then notify_mover(wake, earliest) end
if #fired > 0 then redis.call('HINCRBY', counts, 'fired', #fired) end
if skipped > 0 then redis.call('HINCRBY', counts, 'skipped', skipped) end
return {1, now, head_ms(ticks) or -1, skipped, fired, unplanned}
