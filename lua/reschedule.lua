-- reschedule: delayed, or ready -> delayed with another due time, for every group that still waits for the job.
-- keys: jobs, bucket, progress, counts, settings, wake, key_tickets, key_waiting, key_admitted, key_unstarted,
--   key_counts, key_paused, key_next_start
-- ARGV[1] now_ms or ''
-- ARGV[2] id
-- ARGV[3] when: '+delay_ms', or due_ms
-- ARGV[4] the topic's number of shards, as the caller knows it
-- ARGV[5] 'cover' = write even if nothing is to be changed, so that WAIT covers earlier writes; ''; or none
-- ARGV[6] the job as it was shown (deliveries_in): another delivery is left alone; or none
-- returns 1 = rescheduled; 0 = no such job, no group waits for it, or it waits for other jobs; -1 = an attempt is running;
-- -2 = the caller's settings of the topic are out of date, nothing was changed; -3 = it is no longer as it was shown; -4 =
-- no job that was shown is there
-- flags: allow-oom
-- include: clock, deliveries, due, group_states, groups, stored_format, waits
local id, when, now = ARGV[2], ARGV[3], now_ms(ARGV[1])
local due = tonumber(when)
if string.byte(when) == 43 then due = now + due end

local topic = redis.call('HMGET', settings, 'shards', 'groups', 'leaving', 'format', 'key_limit')
check_format(topic[4])
if topic[1] ~= ARGV[4] then return -2 end
if ARGV[5] == 'cover' then redis.call('HINCRBY', counts, 'enqueued', 0) end
local record = redis.call('HGET', jobs, id)
if not record then return ARGV[6] and -4 or 0 end
local s, job = shard(KEYS), {id = id, record = record}
s.now, s.groups, s.leaving, s.key_limit = now, names(topic[2]), topic[3], topic[5]
if is_changed(s, job, ARGV[6]) then return -3 end
if is_waiting(job.record) then return 0 end -- its due time is when the others have ended
local concerned, states, is_running = group_states(s, job)
if is_running then return -1 end
job.groups, job.states = concerned, states
return set_due(s, job, due) and 1 or 0
