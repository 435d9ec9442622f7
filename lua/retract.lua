-- retract: takes back the occurrence whose job was enqueued ahead of its time, if it is not due yet: its job is
-- cancelled, and it is in the plan again, to be taken when it is due.
-- keys: schedules, ticks, jobs, bucket, ready, progress, counts, settings, history, taken, taken_until, wake,
--   key_tickets, key_waiting, key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- ARGV[1] now_ms or ''
-- ARGV[2] id of the schedule
-- ARGV[3] history cap
-- returns the id of the job, '' = none was cancelled
-- flags: allow-oom
-- include: clock, drop_job, groups, removal, results, schedule, stored_format
local now, id = now_ms(ARGV[1]), ARGV[2]
local topic = redis.call('HMGET', settings, 'groups', 'format', 'after_finish', 'key_limit', 'results', 'linked')
check_format(topic[2])
local s = shard(KEYS)
s.now, s.history_cap, s.key_limit, s.groups = now, ARGV[3], topic[4], names(topic[1])
s.leaving = false -- a leaving group has no progress with a job that was not due yet
s.on_removed = after_removal(s, topic[3], topic[6])
s.results = results_in(topic[5])
local stored = redis.call('HGET', schedules, id)
local schedule = stored and parse_schedule(stored)
if not schedule or schedule.ahead == '' then return '' end
local due, time, job = parse_occurrence(schedule.ahead)
if due <= now then return '' end

local record = redis.call('HGET', jobs, job)
-- Who has rescheduled it, or cancelled it, has decided about this occurrence.
local untouched = record and tonumber(string.match(record, '^%d+', 13)) == due
local cancelled = untouched and drop_job(s, {id = job, record = record}, nil) == 1
if cancelled then
  table.insert(schedule.plan, 1, schedule.ahead)
  schedule.state, schedule.fired, schedule.last_ms = 'active', schedule.fired - 1, string.format('%.0f', time - 1)
  redis.call('ZADD', ticks, string.format('%.0f', due), id)
else
  schedule.previous = job
end
schedule.ahead = ''
redis.call('HSET', schedules, id, format_schedule(schedule))
return cancelled and job or ''
