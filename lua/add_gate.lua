-- add_gate: a flow that is being built gets a gate, for which some of its jobs will wait (flows.lua). Idempotent.
-- keys: settings
-- ARGV[1] now_ms or ''
-- ARGV[2] name
-- ARGV[3] life
-- ARGV[4] number of the gate
-- ARGV[5] within how many ms the flow must be complete, from now
-- ARGV[6..] per job: who waits, as in a line of followers.lua from the topic on
-- returns 1 = done; 0 = the flow is no longer being built
-- include: clock, flows, followers, link_key, stored_format
check_format(redis.call('HGET', settings, 'format'))
local s, name, n = shard(KEYS), ARGV[2], tonumber(ARGV[4])
s.now = now_ms(ARGV[1])
local flows, followers = link_key(s, 'flows'), link_key(s, 'followers')
local text = redis.call('HGET', flows, name)
local f = text and flow_in(text)
if not f or f.life ~= ARGV[3] or f.state ~= 'b' or n > f.gates then return 0 end
if n < f.gates then return 1 end
local lines, at = {}, string.format('%.0f\31', s.now)
for i = 6, #ARGV, 1 do lines[#lines + 1] = at .. ARGV[i] .. '\n' end
redis.call('HSET', settings, 'linked', 1)
redis.call('HSET', followers, gate_of(name, n, f.life),
  followers_text({life = f.life, generation = 0, how = '', plus = '', adds = '', list = table.concat(lines)}))
f.gates, f.until_ms = n + 1, s.now + ARGV[5]
keep_flow(s, name, f, look_at(s, f))
return 1
