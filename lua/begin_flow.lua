-- begin_flow: nothing -> a flow that is being built, and is withdrawn if it is not complete in time. Idempotent.
-- keys: jobs, settings, wake
-- ARGV[1] now_ms or ''
-- ARGV[2] the topic's number of shards, as the caller knows it
-- ARGV[3] name
-- ARGV[4] life (flows.lua)
-- ARGV[5] within how many ms it must be complete
-- ARGV[6] after how many ms what has not ended is cancelled; 0 = never
-- returns {code, life}: 1 = done; 0 = the caller's settings of the topic are out of date; -1 = there is a flow with this name;
-- -2 = one is being built, or withdrawn at this moment, and has this life
-- include: clock, flows, link_key, notify_mover, stored_format
local name, life = ARGV[3], ARGV[4]
local topic = redis.call('HMGET', settings, 'shards', 'format')
check_format(topic[2])
if topic[1] ~= ARGV[2] then return {0, ''} end
local s = shard(KEYS)
s.now = now_ms(ARGV[1])
local flows = link_key(s, 'flows')
if redis.call('HEXISTS', jobs, name) == 1 then return {-1, ''} end
local text = redis.call('HGET', flows, name)
local held = text and flow_in(text)
local is_over = held and held.state == 'w' and held.ended == held.gates
if held and held.life ~= life and not is_over then return {held.state == 'o' and -1 or -2, held.life} end
if not held or held.life ~= life then
  local deadline = tonumber(ARGV[6])
  held = {life = life, state = 'b', gates = 0, ended = 0, until_ms = s.now + ARGV[5],
    deadline_ms = deadline > 0 and s.now + deadline or 0}
  keep_flow(s, name, held, look_at(s, held))
  notify_mover(wake, held.until_ms)
end
return {1, life}
