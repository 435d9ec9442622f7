-- audit_bucket: reads a page of the bucket's members, and finds those without a record. It changes nothing.
-- keys: bucket, jobs, settings
-- ARGV[1] cursor from the previous page; '0' at first
-- ARGV[2] limit: about how many members
-- returns {cursor, id, ...}: waiting jobs without a record, except those of leaving groups, which leave_group removes.
-- cursor '0' = this was the last page
-- runs while its slot moves
-- flags: no-writes
-- include: groups, stored_format
local topic = redis.call('HMGET', settings, 'leaving', 'format')
check_format(topic[2])
local leaving = names(topic[1])
local page = redis.call('ZSCAN', bucket, ARGV[1], 'COUNT', ARGV[2])
local reply = {page[1]}
for i = 1, #page[2], 2 do
  local rest = string.sub(page[2][i], 13)
  local group, id = string.match(rest, '^\31([^\31]*)\31(.*)$')
  if redis.call('HEXISTS', jobs, id or rest) == 0 and not has(leaving, group) then reply[#reply + 1] = id or rest end
end
return reply
