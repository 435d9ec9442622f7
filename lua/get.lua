-- get: reads one job and its progress in every group, at one moment.
-- keys: jobs, bucket, progress, settings, key_tickets, key_waiting
-- ARGV[1] id
-- ARGV[2] the topic's number of shards, as the caller knows it; '' = the caller knows that the job is here
-- returns nil = the caller's settings of the topic are out of date; {} = no such job; otherwise what
-- job_row returns: {record, delayed, group, progress, waits, ...}
-- runs while its slot moves
-- flags: no-writes
-- include: group_states, groups, job_row, stored_format
local id, topic = ARGV[1], redis.call('HMGET', settings, 'shards', 'groups', 'leaving', 'format')
check_format(topic[4])
if ARGV[2] ~= '' and topic[1] ~= ARGV[2] then return false end
local record = redis.call('HGET', jobs, id)
if not record then return {} end
local s = shard(KEYS)
s.groups, s.leaving = names(topic[2]), topic[3]
local job = {id = id, record = record}
job.groups, job.states = group_states(s, job)
return job_row(s, job)
