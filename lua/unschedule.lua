-- unschedule: removes a schedule, unless the job of an occurrence that is not due yet is enqueued: `retract` takes that
-- back. The jobs of its past occurrences stay.
-- keys: schedules, ticks, counts, settings
-- ARGV[1] now_ms or ''
-- ARGV[2] id
-- returns 1 = removed; 0 = there is none; -1 = such a job is there, nothing was written
-- flags: allow-oom
-- include: clock, schedule, stored_format
local now, id = now_ms(ARGV[1]), ARGV[2]
check_format(redis.call('HGET', settings, 'format'))
local record = redis.call('HGET', schedules, id)
if not record then return 0 end
local schedule = parse_schedule(record)
local ahead = parse_occurrence(schedule.ahead)
if ahead and ahead > now then return -1 end
redis.call('ZREM', ticks, id)
redis.call('HDEL', schedules, id)
redis.call('HINCRBY', counts, 'unscheduled', 1)
if schedule.state == 'paused' then redis.call('HINCRBY', counts, 'paused', -1) end
return 1
