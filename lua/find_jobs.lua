-- find_jobs: searches a page of the shard's jobs. It changes nothing.
-- KEYS[1] jobs      HASH
-- KEYS[2] bucket    ZSET
-- KEYS[3] progress  HASH
-- KEYS[4] settings  HASH
-- KEYS[5] lanes     ZSET
-- KEYS[6] keyed     HASH
-- ARGV[1] cursor from the previous page; '0' at first
-- ARGV[2] limit: about how many jobs to look at; fewer if the shard has large jobs
-- ARGV[3] state, or ''
-- ARGV[4] group, or ''
-- ARGV[5] beginning of the id, or ''
-- ARGV[6] how much of a match to return: 'job', 'head' or 'plan'
-- ARGV[7..] texts that the record must have, as in lib/search.lua
-- returns {cursor, looked, match, ...}: cursor '0' = this was the last page; looked = how many jobs the page has; each
-- match as `matches` returns it. A job that is there all the time comes at least once
-- include: progress, ring, settle, lanes, leaving_groups, group_states, delivery, deliveries, job_row, largest, scan, search, stored_format
local jobs, bucket, progress, settings, lanes, keyed = unpack(KEYS)
local topic = redis.call('HMGET', settings, 'groups', 'largest', 'leaving', 'format')
check_format(topic[4])
local k = {bucket = bucket, progress = progress, settings = settings, leaving = topic[3], lanes = lanes, keyed = keyed}
local q = {state = ARGV[3], group = ARGV[4], prefix = ARGV[5], whole = ARGV[6], texts = {unpack(ARGV, 7)}}
local cursor, ids, records = scan(jobs, topic[2], ARGV[1], ARGV[2])
return {cursor, #ids, unpack(matches(k, names(topic[1]), q, ids, records))}
