-- dead_letters: reads a page of one group's dead letters with everything stored of them, the longest dead first, at one
-- moment.
-- keys: jobs, progress, settings
-- keys of the group: dead
-- ARGV[1] group
-- ARGV[2] until_ms: only letters buried at this time or before
-- ARGV[3] offset: how many of the longest dead to skip
-- ARGV[4] limit
-- ARGV[5] most bytes of records; one letter is returned in any case
-- returns {looked, id, buried_ms, record, progress, ...}; looked = how many were looked at, 0 = there are no more
-- runs while its slot moves
-- flags: no-writes
-- include: progress, stored_format
check_format(redis.call('HGET', settings, 'format'))
local group, bytes = ARGV[1], 0
local page = redis.call('ZRANGEBYSCORE', dead, '-inf', ARGV[2], 'WITHSCORES', 'LIMIT', ARGV[3], ARGV[4])
local reply = {0}
for i = 1, #page, 2 do
  local record = redis.call('HGET', jobs, page[i])
  local state = redis.call('HGET', progress, field_of(group, page[i]))
  if record and state then
    bytes = bytes + #record
    if #reply > 1 and bytes > tonumber(ARGV[5]) then break end
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = page[i], page[i + 1], record, state
  end
  reply[1] = reply[1] + 1
end
return reply
