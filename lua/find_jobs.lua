-- find_jobs: searches a page of the shard's jobs. It changes nothing.
-- KEYS[1] jobs      HASH
-- KEYS[2] bucket    ZSET
-- KEYS[3] progress  HASH
-- KEYS[4] settings  HASH
-- KEYS[5] lanes     ZSET
-- KEYS[6] keyed     HASH
-- ARGV[1] cursor from the previous page; '0' at first
-- ARGV[2] limit: about how many jobs to look at; fewer if the shard has large jobs
-- ARGV[3..] what is looked for, and how much of a match to return, as `query_in` of lib/search.lua reads it
-- returns {cursor, looked, match, ...}: cursor '0' = this was the last page; looked = how many jobs the page has; each
-- match as `matches` returns it. A job that is there all the time comes at least once
-- runs while its slot moves
-- include: progress, ring, settle, lanes, leaving_groups, group_states, delivery, deliveries, job_row, largest, scan, search_groups, search, stored_format
local jobs, bucket, progress, settings, lanes, keyed = unpack(KEYS)
local topic = redis.call('HMGET', settings, 'groups', 'largest', 'leaving', 'format')
check_format(topic[4])
local k = {bucket = bucket, progress = progress, settings = settings, leaving = topic[3], lanes = lanes, keyed = keyed}
local cursor, ids, records = scan(jobs, topic[2], ARGV[1], ARGV[2])
return {cursor, #ids, unpack(matches(k, names(topic[1]), query_in({unpack(ARGV, 3)}), ids, records))}
