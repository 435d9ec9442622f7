-- look_after: what the mover has to do for jobs that wait for others, now and then: to ask those that have not reported of their
-- end, whether their shards have lost it. Forgets what jobs waited for that have ended.
-- keys: jobs, bucket, ready, progress, counts, settings, history, wake, taken, taken_until, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- ARGV[1] now_ms or ''
-- ARGV[2] history cap
-- ARGV[3] limit: how many jobs to look at
-- returns {now_ms, next_ms, member, n, others, states, ...}: next_ms: when to call again, -1 = no job waits; the rest, for
-- jobs that wait: ID\31NONCE, and the n-th 500 of those that it waits for, as in waits.lua
-- flags: allow-oom
-- include: dependents, link_key, waits
local MOST_BYTES = 262144
local s = shard(KEYS)
read_topic(s, ARGV[1], ARGV[2])
local dependencies, looks = link_key(s, 'dependencies'), link_key(s, 'dependents')
local due = redis.call('ZRANGEBYSCORE', looks, '-inf', string.format('%.0f', s.now), 'LIMIT', 0, ARGV[3])
local reply, bytes = {s.now, -1}, 0
local over = {} -- of those that have ended

-- Those that it waits for and that are not done.
local function ask_for(w)
  for n = 0, math.ceil(w.total / PER_FIELD) - 1 do
    local field = w.member .. '\31' .. n
    local both = redis.call('HMGET', dependencies, field, field .. '\31s')
    if string.find(both[2], '^o*[^o]') then
      bytes = bytes + #both[1]
      for _, value in ipairs({w.member, n, both[1], both[2]}) do reply[#reply + 1] = value end
    end
  end
end

for _, member in ipairs(due) do
  local w, job = dependent(s, string.match(member, '^([^\31]*)\31(.*)$'))
  if not w then
    over[#over + 1] = member
  else
    bytes = bytes + #job.record
    w.looks = w.looks + 1
    if not is_waiting(job.record) then
      keep_wait(s, w)
    elseif act_on(s, w, job) == 1 then
      ask_for(w)
    end
    if redis.call('HEXISTS', dependencies, member) == 1 then
      redis.call('ZADD', looks, string.format('%.0f', look_again_at(s, w)), member)
    end
  end
  if bytes > MOST_BYTES then break end
end
if #over > 0 then forget_waits(s, over) end
start_jobs(s)
reply[2] = tonumber(redis.call('ZRANGE', looks, 0, 0, 'WITHSCORES')[2] or -1)
return reply
