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

-- wait_for_turn(s, job, delivery): a job that is due waits for its turn in job.group. job.due: text
local function wait_for_turn(s, job, delivery)
  local key = ranked_of(s, job.group)
  redis.call('ZADD', key, string.format('%.0f', rank_of(job.record) * APART + job.due), delivery)
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

local moved = {} -- group -> how many
-- A first delivery: from now on the groups that there are have progress with the job.
local function rank_first(delivery, record, due)
  local order, id = string.sub(delivery, 1, 12), string.sub(delivery, 13)
  redis.call('HINCRBY', counts, 'detached', 1)
  for _, group in ipairs(s.groups) do
    redis.call('HSET', progress, field_of(group, id), 'w|0|0|0|-|' .. order .. '|||' .. due .. '|')
    wait_for_turn(s, {group = group, record = record, due = due}, member(order, group, id))
  end
end
local function rank(delivery, due)
  local group, id = string.match(delivery, '^\31([^\31]*)\31(.*)$', 13)
  local record = redis.call('HGET', jobs, id or string.sub(delivery, 13))
  if group then
    redis.call('HINCRBY', counts, 'waiting:' .. group, -1)
    if not streams[group] then return end -- it is leaving
    wait_for_turn(s, {group = group, record = record, due = due}, delivery)
    moved[group] = (moved[group] or 0) + 1
    return
  elseif record and string.find(record, string.sub(delivery, 1, 12), 1, true) == 1 then
    rank_first(delivery, record, due)
  else
    redis.call('XADD', ready, '*', 'j', delivery) -- the job is lost; claim finds out
  end
  for _, each in ipairs(s.groups) do moved[each] = (moved[each] or 0) + 1 end
end

local limit = math.min(tonumber(ARGV[2]), fitting(topic[5], math.max(1, math.floor(AT_ONCE / #s.groups))))
local due = redis.call('ZRANGEBYSCORE', bucket, '-inf', string.format('%.0f', now), 'WITHSCORES', 'LIMIT', 0, limit)
-- Removal first: a Redis at its memory limit refuses a script whose first write adds data, not one that frees memory.
if #due > 0 then redis.call('ZREMRANGEBYRANK', bucket, 0, #due / 2 - 1) end
for i = 1, #due, 2 do rank(due[i], string.format('%.0f', due[i + 1])) end
for group, number in pairs(moved) do redis.call('HINCRBY', counts, 'ready:' .. group, number) end
for group, stream in pairs(streams) do promote(s, group, stream, 0) end
if #due == 0 then return {0, now, head_ms(bucket) or -1, open_jobs(s)} end
redis.call('HINCRBY', counts, 'moved', #due / 2)
redis.call('HSET', settings, 'moved_at', string.format('%.0f', now))
return {#due / 2, now, head_ms(bucket) or -1, #due / 2}
