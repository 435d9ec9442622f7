-- audit_bucket: a page of the bucket's members, and which of them have no record. Nothing is changed.
-- KEYS[1] bucket  ZSET
-- KEYS[2] jobs    HASH
-- ARGV[1] cursor, as the page before returned it; '0' at first
-- ARGV[2] limit: about how many members
-- returns {cursor, id, ...}: the jobs that wait and have no record. cursor '0' = this was the last page
local bucket, jobs = unpack(KEYS)
local page = redis.call('ZSCAN', bucket, ARGV[1], 'COUNT', ARGV[2])
local reply = {page[1]}
for i = 1, #page[2], 2 do
  local rest = string.sub(page[2][i], 13)
  local id = string.match(rest, '^\31[^\31]*\31(.*)$') or rest
  if redis.call('HEXISTS', jobs, id) == 0 then reply[#reply + 1] = id end
end
return reply
