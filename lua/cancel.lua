-- cancel: delayed, or ready -> cancelled, for every group that still waits for the job.
-- KEYS[1] jobs      HASH
-- KEYS[2] bucket    ZSET
-- KEYS[3] ready     STREAM
-- KEYS[4] progress  HASH
-- KEYS[5] counts    HASH
-- KEYS[6] settings  HASH
-- KEYS[7] history   STREAM
-- ARGV[1] now_ms or ''
-- ARGV[2] id
-- ARGV[3] history cap
-- returns 1 = cancelled, no new attempt starts; 0 = no such job, or nothing left to cancel; -1 = an attempt is running
-- include: clock, progress, settle, history, standing, drop_job
local jobs, bucket, ready, progress, counts, settings, history = unpack(KEYS)
local k = {jobs = jobs, bucket = bucket, ready = ready, progress = progress, counts = counts, settings = settings,
  history = history, cap = ARGV[3]}
local record = redis.call('HGET', jobs, ARGV[2])
if not record then return 0 end
return drop_job(k, names(redis.call('HGET', settings, 'groups')), ARGV[2], record, now_ms(ARGV[1]), 'cancelled')
