-- find_jobs: searches a page of the shard's jobs. It changes nothing.
-- keys: jobs, bucket, progress, settings, key_tickets, key_waiting
-- ARGV[1] cursor from the previous page; '0' at first
-- ARGV[2] limit: about how many jobs to look at; fewer if the shard has large jobs
-- ARGV[3..] what is looked for, and how much of a match to return, as `query_in` of lib/search.lua reads it
-- returns {cursor, looked, match, ...}: cursor '0' = this was the last page; looked = how many jobs the page has; each
-- match as `matches` returns it. A job that is there all the time comes at least once
-- runs while its slot moves
-- flags: no-writes
-- include: groups, scan, search, stored_format
local topic = redis.call('HMGET', settings, 'groups', 'largest', 'leaving', 'format')
check_format(topic[4])
local s = shard(KEYS)
s.groups, s.leaving = names(topic[1]), topic[3]
local cursor, ids, records = scan(jobs, topic[2], ARGV[1], ARGV[2])
return {cursor, #ids, unpack(matches(s, query_in({unpack(ARGV, 3)}), ids, records))}
