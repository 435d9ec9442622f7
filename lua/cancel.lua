-- cancel: delayed, or ready -> cancelled, for every group that still waits for the job. Its dead letters are removed as
-- well, or a kick would start it again.
-- keys: jobs, bucket, ready, progress, counts, settings, history, taken, taken_until, wake, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- keys of each group: dead
-- ARGV[1] now_ms or ''
-- ARGV[2] id
-- ARGV[3] history cap
-- ARGV[4] the topic's number of shards, as the caller knows it
-- ARGV[5] groups, 'a,b', as the caller knows them
-- ARGV[6] 'cover' = write even if nothing is to be changed, so that WAIT covers earlier writes; ''; or none
-- ARGV[7] the job as it was shown (deliveries_in): another delivery is left alone; or none
-- returns 1 = cancelled, no new attempt starts; 0 = no such job, or no group waits for it; -1 = an attempt is running;
-- -2 = the caller's settings of the topic are out of date, nothing was changed; -3 = it is no longer as it was shown; -4 =
-- no job that was shown is there
-- flags: allow-oom
-- include: clock, deliveries, drop_job, groups, removal, results, stored_format
local s = shard(KEYS)
s.history_cap = ARGV[3]
local topic = redis.call('HMGET', settings, 'shards', 'groups', 'leaving', 'format', 'after_finish', 'key_limit',
  'results', 'linked')
check_format(topic[4])
if topic[1] ~= ARGV[4] or topic[2] ~= ARGV[5] then return -2 end
s.groups, s.leaving, s.key_limit = names(topic[2]), topic[3], topic[6]
if ARGV[6] == 'cover' then redis.call('HINCRBY', counts, 'enqueued', 0) end
s.now = now_ms(ARGV[1])
s.on_removed = after_removal(s, topic[5], topic[8])
s.results = results_in(topic[7])
local job, dead = {id = ARGV[2], record = redis.call('HGET', jobs, ARGV[2])}, {}
if not job.record then return ARGV[7] and -4 or 0 end
if is_changed(s, job, ARGV[7]) then return -3 end
for i, group in ipairs(s.groups) do dead[group] = KEYS[FIXED + i] end
return drop_job(s, job, dead)
