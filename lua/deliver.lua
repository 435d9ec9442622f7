-- deliver: tells jobs that wait for others how these have ended: waiting -> delayed, ready, or cancelled. Idempotent.
-- keys: jobs, bucket, ready, progress, counts, settings, history, wake, taken, taken_until, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- ARGV[1] now_ms or ''
-- ARGV[2] history cap
-- ARGV[3..] per job that waits: id, nonce, the news: 'index|generation|how|seen;' for each of the others (hear); seen '' = not
-- given; children of those, for which it has to wait, too (add_to), '' = none. No job comes twice.
-- returns {code, ...}: 0 = the job has ended; otherwise this may have to be said again: 2 = it starts, now or after its
-- delay, because of this call; 1 = it does not; 3 = it does not, and only what may change has to be said again; 4 = it is the
-- own job of a flow that was cancelled: the children must not start. Only for the first jobs, if much is stored of
-- them: call it again for the others.
-- flags: allow-oom
-- include: children, dependents, hear, largest, waits
local MOST_JOBS, KNOWN_AFTER_MS = 250, 60000
local s = shard(KEYS)
read_topic(s, ARGV[1], ARGV[2])
s.states_bytes = 0

-- A flow's own job stays long after the others have ended. A minute after it knew of all, no failover makes it forget them.
local function knows_for_good(w, record)
  return is_own(w) and not is_waiting(record)
    and s.now - (tonumber(string.sub(record, 13, 25)) - w.delay) > KNOWN_AFTER_MS
end

-- tell(id, nonce, news, children): returns the job's code.
local function tell(id, nonce, news, children)
  local w, job = dependent(s, id, nonce)
  if not job then return 0 end
  s.states_bytes = s.states_bytes + #job.record
  if not w then return 1 end -- it waited for the opening of its flow alone
  if children ~= '' and not is_closed(w) and (is_own(w) or is_waiting(job.record)) then add_to(s, w, children) end
  for index, generation, how, seen in string.gmatch(news, '([+%x]+)|(%d+)|(%a*)|(%d*);') do
    hear(s, w, {index = index, generation = tonumber(generation), how = how, seen = tonumber(seen)})
  end
  local code = 1
  if w.is_changed then
    local is_alone = waits_for_gate_alone(w) -- then nearly always it starts, and nothing of this is kept
    if not is_alone then keep_states(s, w) end
    if not is_waiting(job.record) then keep_wait(s, w) else code = act_on(s, w, job) end
    if is_alone and code == 1 then keep_states(s, w) end
  end
  if children ~= '' and is_closed(w) then return 4 end
  return code == 1 and knows_for_good(w, job.record) and 3 or code
end

local reply = {}
for i = 3, #ARGV, 4 do
  if #reply == MOST_JOBS or is_enough(s.states_bytes) then break end
  reply[#reply + 1] = tell(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
end
start_jobs(s)
return reply
