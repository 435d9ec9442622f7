-- decide_flow: being built -> open, if it is complete, or withdrawn; then some of its gates end. Idempotent.
-- keys: jobs, settings
-- ARGV[1] now_ms or ''
-- ARGV[2] name
-- ARGV[3] life; '' = of the one that is there
-- ARGV[4] 'open', 'withdraw', 'cancel' = the same, and nothing is added to it any more, or 'forget' = withdraw, and its deadline
-- is forgotten
-- returns {state, left, field, text, ...}: state: o = it is open; w = it was withdrawn; '' = nothing is known of it, or it is not
-- complete; left: how many gates have not ended: call it again; the rest: those that have now, and who waits for them
-- flags: allow-oom
-- include: children, clock, flows, link_key, stored_format, waits
check_format(redis.call('HGET', settings, 'format'))
local s, name = shard(KEYS), ARGV[2]
s.now = now_ms(ARGV[1])
local flows = link_key(s, 'flows')

-- Its own job takes no children any more.
local function close()
  local record = redis.call('HGET', jobs, name)
  local life = record and nonce_of(record)
  local w = record and (ARGV[3] == '' or ARGV[3] == life) and wait_of(s, name .. '\31' .. life)
  if not w or not is_own(w) or is_closed(w) then return end
  w.gate = w.gate .. '!'
  keep_wait(s, w)
end

if ARGV[4] == 'cancel' then close() end
local text = redis.call('HGET', flows, name)
local f = text and flow_in(text)
if not f or ARGV[3] ~= '' and f.life ~= ARGV[3] then return {'', 0} end
if f.state == 'b' and ARGV[4] == 'open' and not is_complete(s, name, f) then return {'', 0} end
if f.state == 'b' then f.state = ARGV[4] == 'open' and 'o' or 'w' end
if ARGV[4] == 'forget' then f.deadline_ms = 0 end
local reply = {f.state, 0}
end_gates(s, name, f, reply)
reply[2] = f.gates - f.ended
return reply
