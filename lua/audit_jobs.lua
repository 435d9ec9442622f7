-- audit_jobs: reads a page of the shard's jobs, and in which stream each of them should be. It changes nothing.
-- keys: jobs, bucket, progress, settings, key_tickets, key_waiting
-- ARGV[1] cursor from the previous page; '0' at first
-- ARGV[2] limit: about how many jobs; fewer if the shard has large jobs
-- returns {cursor, {id, group, entry, ...}, {id, key, ...}, {id, ...}}: the jobs that are ready or running, with their entries
-- (entries_of); all jobs of the page with their keys, '' = it has none; and those that wait for other jobs, and nothing tells
-- for which. cursor '0' = this was the last page
-- runs while its slot moves
-- flags: no-writes
-- include: entries_of, groups, key_tickets, link_key, scan, stored_format, waits
local topic = redis.call('HMGET', settings, 'groups', 'largest', 'leaving', 'format')
check_format(topic[4])
local cursor, ids, records = scan(jobs, topic[2], ARGV[1], ARGV[2])

local s = shard(KEYS)
s.groups, s.leaving = names(topic[1]), topic[3]
local all, lost, dependencies = {}, {}, link_key(s, 'dependencies')
for i, id in ipairs(ids) do
  all[2 * i - 1], all[2 * i] = id, key_of(records[i]) or ''
  local member = is_waiting(records[i]) and id .. '\31' .. nonce_of(records[i])
  if member and redis.call('HEXISTS', dependencies, member) == 0 then lost[#lost + 1] = id end
end
return {cursor, entries_of(s, ids, records), all, lost}
