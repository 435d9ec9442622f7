-- move_ranked: as move, in a topic with priorities: bucket -> ready, where a job waits for its turn (ranked.lua).
-- keys: bucket, ready, counts, settings, jobs, progress
-- keys of each group: own
-- ARGV[1] now_ms or ''
-- ARGV[2] limit; fewer if the topic has several groups, or the shard has large jobs
-- ARGV[3] groups, 'a,b'
-- ARGV[4] '1' = `permit` has granted the limit
-- returns as move does
-- flags: allow-oom
-- include: clock, groups, largest, notify_mover, open_jobs, progress, ranked, stored_format, turns
local AT_ONCE = 300 -- groups × jobs
local NO_RATE = 1e9 -- what the shards of a topic with priorities have instead of none: every job goes through the bucket

-- rank_of(record): returns the rank of a job; of one whose record is gone as well
local function rank_of(record)
  local class = string.match(record or '', '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n\29\31]*\29(%l)')
  return class == 'h' and 0 or class == 'l' and 2 or 1
end

-- id_in(delivery): returns its id, and the group if it is one's own
local function id_in(delivery)
  local group, id = string.match(delivery, '^\31([^\31]*)\31(.*)$', 13)
  return id or string.sub(delivery, 13), group
end

local topic = redis.call('HMGET', settings, 'groups', 'paused', 'rate', 'format', 'largest', 'prioritized')
check_format(topic[4])
local now, known, rate = now_ms(ARGV[1]), topic[1], tonumber(topic[3] or 0)
local s = shard(KEYS)
s.groups = names(known)
if not topic[6] then return {-1, now, -1, 0, ''} end -- another topic had this name
if known ~= ARGV[3] then return {-1, now, -1, 0, known or ''} end
if topic[2] == '1' then return {0, now, -1, open_jobs(s)} end
if rate > 0 and rate < NO_RATE and ARGV[4] == '0' then return {-2, now, -1, open_jobs(s)} end
local streams = {}
for i, group in ipairs(s.groups) do streams[group] = KEYS[FIXED + i] end

local limit = math.min(tonumber(ARGV[2]), fitting(topic[5], math.max(1, math.floor(AT_ONCE / #s.groups))))
local due = redis.call('ZRANGEBYSCORE', bucket, '-inf', string.format('%.0f', now), 'WITHSCORES', 'LIMIT', 0, limit)
-- Removal first: a Redis at its memory limit refuses a script whose first write adds data, not one that frees memory.
if #due > 0 then redis.call('ZREMRANGEBYRANK', bucket, 0, #due / 2 - 1) end

local ids, turns, marks, moved, detached = {}, {}, {}, {}, 0 -- turns, moved: by group
for i = 1, #due, 2 do ids[#ids + 1] = id_in(due[i]) end
local records = #ids > 0 and redis.call('HMGET', jobs, unpack(ids)) or {}

local function wait_for_turn(group, record, at, delivery)
  local its = turns[group] or {}
  turns[group], its[#its + 1], its[#its + 2] = its, string.format('%.0f', rank_of(record) * APART + at), delivery
  moved[group] = (moved[group] or 0) + 1
end

for i, record in ipairs(records) do
  local delivery, at = due[2 * i - 1], string.format('%.0f', due[2 * i])
  local id, group = id_in(delivery)
  local order = string.sub(delivery, 1, 12)
  if group then
    redis.call('HINCRBY', counts, 'waiting:' .. group, -1)
    if streams[group] then wait_for_turn(group, record, at, delivery) end -- or it is leaving
  elseif record and string.find(record, order, 1, true) == 1 then
    -- A first delivery: from now on the groups that there are have progress with the job.
    detached = detached + 1
    for _, each in ipairs(s.groups) do
      marks[#marks + 1], marks[#marks + 2] = field_of(each, id), 'w|0|0|0|-|' .. order .. '|||' .. at .. '|'
      wait_for_turn(each, record, at, member(order, each, id))
    end
  else
    redis.call('XADD', ready, '*', 'j', delivery) -- the job is lost; claim finds out
    for _, each in ipairs(s.groups) do moved[each] = (moved[each] or 0) + 1 end
  end
end
if detached > 0 then
  redis.call('HINCRBY', counts, 'detached', detached)
  redis.call('HSET', progress, unpack(marks))
end
for group, its in pairs(turns) do
  local key = ranked_of(s, group)
  redis.call('ZADD', key, unpack(its))
end
for group, number in pairs(moved) do redis.call('HINCRBY', counts, 'ready:' .. group, number) end
for group, stream in pairs(streams) do promote(s, group, stream, 0) end
if #due == 0 then return {0, now, head_ms(bucket) or -1, open_jobs(s)} end
redis.call('HINCRBY', counts, 'moved', #due / 2)
redis.call('HSET', settings, 'moved_at', string.format('%.0f', now))
return {#due / 2, now, head_ms(bucket) or -1, #due / 2}
