-- deliver: tells jobs that wait for others how these have ended: waiting -> delayed, or -> cancelled. Idempotent.
-- keys: jobs, bucket, ready, progress, counts, settings, history, wake, taken, taken_until, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- ARGV[1] now_ms or ''
-- ARGV[2] history cap
-- ARGV[3..] per piece of news: id, nonce, index, generation, how (followers.lua), seen (hear), '' = not given
-- returns {code, ...}: 0 = the job has ended, or needs this no more; otherwise this may have to be said again: 2 = it starts, now
-- or after its delay, because of this call; 1 = it does not. Only for the first pieces, if they are for many jobs, or much is known of these:
-- call it again for the others.
-- flags: allow-oom
-- include: dependents, waits
local MOST_JOBS, MOST_BYTES = 50, 65536 -- each job takes up to twenty commands
local KNOWN_AFTER_MS = 60000
local s = shard(KEYS)
read_topic(s, ARGV[1], ARGV[2])
local waits, waiting_jobs, order, reply = {}, {}, {}, {}
s.states_bytes = 0

-- A job that waits or has waited, by its id and nonce; false = it has ended.
local function known(id, nonce)
  local member = id .. '\31' .. nonce
  if waits[member] == nil then
    local w, job = dependent(s, id, nonce)
    waits[member], waiting_jobs[member] = w or false, job
    order[#order + 1] = member
  end
  return waits[member]
end

-- A flow's own job stays long after the others have ended. A minute after it knew of all, no failover makes it forget them: only
-- what may change is delivered again.
local function knows_for_good(w, record, how)
  return w.gate == '=' and not is_waiting(record) and how ~= '' and how ~= 'dead' and how ~= 'archived'
    and s.now - (tonumber(string.sub(record, 13, 25)) - w.delay) > KNOWN_AFTER_MS
end

local last = #ARGV
for i = 3, #ARGV, 6 do
  if #order >= MOST_JOBS or s.states_bytes > MOST_BYTES then
    last = i - 1
    break
  end
  local w = known(ARGV[i], ARGV[i + 1])
  if w then hear(s, w, {index = tonumber(ARGV[i + 2]), generation = tonumber(ARGV[i + 3]), how = ARGV[i + 4],
    seen = tonumber(ARGV[i + 5])}) end
end
for _, member in ipairs(order) do
  local w, job = waits[member], waiting_jobs[member]
  if w and w.is_changed then
    keep_states(s, w)
    if not is_waiting(job.record) then keep_wait(s, w) else w.code = act_on(s, w, job) end
  end
end
for i = 3, last, 6 do
  local w = known(ARGV[i], ARGV[i + 1])
  local is_over = not w or knows_for_good(w, waiting_jobs[w.member].record, ARGV[i + 4])
  reply[#reply + 1] = is_over and 0 or w.code or 1
end
return reply
