-- list_ids: reads a page of the ids that the shard has anything of, and the keys of their jobs. Forgets some of the taken
-- ids whose time is over: as long as they are here, nobody else may have them (enqueue_unique).
-- keys: jobs, taken, taken_until, settings
-- ARGV[1] now_ms or ''
-- ARGV[2] how jobs are spread, as the caller knows it
-- ARGV[3] 'jobs' or 'taken': where to read
-- ARGV[4] cursor, '0' at first, then as returned. A caller that reads the page of a cursor again, and goes on when it is empty,
-- misses no id that was there all the time
-- ARGV[5] limit: about how many; fewer if the shard has large jobs
-- returns nil = the caller's settings of the topic are out of date; or {cursor, puts, id, key, ...}: cursor '0' = there are
-- no more; puts: how often a job, or a taken id, came to where its id was at home before (enqueue_unique, relay, restore),
-- until when what is not at home only becomes less; key '' = its job has none, or there is none
-- runs while its slot moves
-- flags: allow-oom
-- include: clock, largest, stored_format, taking
local topic = redis.call('HMGET', settings, 'shards', 'largest', 'format', 'former_puts')
check_format(topic[3])
if topic[1] ~= ARGV[2] then return false end
local limit, in_taken = fitting(topic[2], tonumber(ARGV[5])), ARGV[3] == 'taken'
local place = in_taken and taken or jobs
local page = redis.call('HSCAN', place, ARGV[4], 'COUNT', limit)
local records, reply, over = {}, {page[1], topic[4] or '0'}, {}
for i = 2, in_taken and #page[2] or 0, 2 do records[i] = redis.call('HGET', jobs, page[2][i - 1]) or '' end
local s = shard(KEYS)
s.now = now_ms(ARGV[1])
if in_taken then over = trim_taken(s, limit) end
for i = 1, #page[2], 2 do
  local id, record = page[2][i], records[i + 1] or page[2][i + 1]
  if not over[id] then
    reply[#reply + 1] = id
    reply[#reply + 1] = string.match(record, '^' .. string.rep('[^\n]*\n', 6) .. '[^\n\31]*\31([^\n]*)\n') or ''
  end
end
return reply
