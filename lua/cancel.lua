-- cancel: delayed, or ready -> cancelled, for every group that still waits for the job. Its dead letters are removed as
-- well, or a kick would start it again.
-- KEYS[1] jobs      HASH
-- KEYS[2] bucket    ZSET
-- KEYS[3] ready     STREAM
-- KEYS[4] progress  HASH
-- KEYS[5] counts    HASH
-- KEYS[6] settings  HASH
-- KEYS[7] history   STREAM
-- KEYS[8] taken     HASH
-- KEYS[9] taken_until  ZSET
-- KEYS[10] wake      STREAM
-- KEYS[11] lanes  ZSET
-- KEYS[12] fronts  ZSET
-- KEYS[13] keyed  HASH
-- KEYS[14] crowds  ZSET
-- KEYS[15..] dead:GROUP  ZSET  in the order of ARGV[5]
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
-- include: clock, progress, ring, settle, history, leaving_groups, group_states, delivery, deliveries, lanes, withdraw, drop_job, stored_format, taken
local jobs, bucket, ready, progress, counts, settings, history, taken, taken_until, wake, lanes, fronts, keyed, crowds = unpack(KEYS)
local k = {jobs = jobs, bucket = bucket, ready = ready, progress = progress, counts = counts, settings = settings,
  history = history, cap = ARGV[3],
  lanes = lanes, fronts = fronts, keyed = keyed, crowds = crowds}
local topic = redis.call('HMGET', settings, 'shards', 'groups', 'leaving', 'format', 'after_finish', 'key_limit')
check_format(topic[4])
if topic[1] ~= ARGV[4] or topic[2] ~= ARGV[5] then return -2 end
k.leaving, k.wake, k.key_limit = topic[3], wake, topic[6]
if ARGV[6] == 'cover' then redis.call('HINCRBY', counts, 'enqueued', 0) end
local now = now_ms(ARGV[1])
k.gone = leaving_pool(topic[5], taken, taken_until, now)
local record, groups, dead = redis.call('HGET', jobs, ARGV[2]), names(topic[2]), {}
if not record then return ARGV[7] and -4 or 0 end
if is_changed(k, groups, ARGV[2], record, ARGV[7]) then return -3 end
for i, group in ipairs(groups) do dead[group] = KEYS[14 + i] end
return drop_job(k, groups, ARGV[2], record, now, dead)
