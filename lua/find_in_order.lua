-- find_in_order: searches a page of the shard's delayed jobs, by due time, of a group's dead letters, by burial, or of the
-- jobs that are blocked, by when they were. It changes nothing.
-- keys: jobs, bucket, progress, settings, key_tickets, key_waiting
-- keys of the call: index
-- ARGV[1] from_ms: the first time
-- ARGV[2] the member at which the previous page ended, at from_ms; '' = begin with this time
-- ARGV[3] until_ms: the last time
-- ARGV[4] limit: how many members to look at; fewer if the shard has large jobs
-- ARGV[5..] what is looked for, and how much of a match to return, as `query_in` of lib/search.lua reads it
-- returns {member, at_ms, looked, match, ...}: where this page ends; looked = how many members it has, 0 = there are no
-- more; each match as `matches` returns it. A member that is there all the time comes exactly once
-- runs while its slot moves
-- flags: no-writes
-- include: end_in_group, groups, largest, search, search_groups, stored_format
local topic = redis.call('HMGET', settings, 'groups', 'largest', 'leaving', 'format')
check_format(topic[4])
local s = shard(KEYS)
s.groups, s.leaving = names(topic[1]), topic[3]

-- The rank of the first member after the previous page, also if that page's last member has left since: equal times are
-- sorted by member, so a search by halves finds the place in a few steps.
local low, high = redis.call('ZCOUNT', index, '-inf', '(' .. ARGV[1]), nil
if ARGV[2] ~= '' then
  high = redis.call('ZCOUNT', index, '-inf', ARGV[1])
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_after(redis.call('ZRANGE', index, middle, middle)[1], ARGV[2]) then high = middle else low = middle + 1 end
  end
end
local page = redis.call('ZRANGE', index, low, low + fitting(topic[2], tonumber(ARGV[4])) - 1, 'WITHSCORES')
local ids, looked, place, at = {}, 0, '', ''
for i = 1, #page, 2 do
  if tonumber(page[i + 1]) > tonumber(ARGV[3]) then break end
  looked, place, at = looked + 1, page[i], page[i + 1]
  local rest = index == bucket and string.sub(page[i], 13) or string.match(page[i], '^[^\31]*')
  ids[looked] = string.match(rest, '^\31[^\31]*\31(.*)$') or rest
end
local records = values_of(jobs, ids)
return {place, at, looked, unpack(matches(s, query_in({unpack(ARGV, 5)}), ids, records))}
