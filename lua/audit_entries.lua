-- audit_entries: reads in which streams some jobs should be, and what has come into these streams, at one moment. It changes
-- nothing.
-- keys: jobs, bucket, progress, settings, key_tickets, key_waiting
-- keys of the call: stream
-- ARGV[1] the last entry of the stream that is known
-- ARGV[2] limit: how many entries after it at most
-- ARGV[3..] ids of the jobs, as many as audit_jobs returns in a page at most
-- returns {{id, group, entry, ...}, {entry, value, ...}}: as audit_jobs; and the entries
-- runs while its slot moves
-- flags: no-writes
-- include: entries_of, groups, stored_format
local topic = redis.call('HMGET', settings, 'groups', 'leaving', 'format')
check_format(topic[3])
local s = shard(KEYS)
s.groups, s.leaving = names(topic[1]), topic[2]
local ids, records, came = {}, {}, {}
for i = 3, #ARGV, 1 do
  local record = redis.call('HGET', jobs, ARGV[i])
  if record then ids[#ids + 1], records[#records + 1] = ARGV[i], record end
end
for _, entry in ipairs(redis.call('XRANGE', stream, '(' .. ARGV[1], '+', 'COUNT', ARGV[2])) do
  came[#came + 1], came[#came + 2] = entry[1], entry[2][2]
end
return {entries_of(s, ids, records), came}
