-- include: endings, followers, link_key, waits

-- Flows: jobs that start together, or not at all. What a flow's shard knows of it while it is built, or has a deadline:
-- HASH `flows`, name -> life|state|gates|ended|until_ms|deadline_ms
-- life         of the flow; no other one has it
-- state        b = it is being built, o = its jobs may start, w = it was withdrawn: they are cancelled
-- gates        each of its jobs waits for one of these, beside what else it waits for. A gate is no job: it is in `followers`
--              as NAME~N\31LIFE, N from 0, as if it were one that has left the pool
-- ended        how many of the gates have ended, done or cancelled, as the state says
-- until_ms     when it is withdrawn, unless it is complete before
-- deadline_ms  when what has not ended is cancelled; 0 = never
-- ZSET `flow_times`: name -> when the mover looks at it next, ms.
-- A flow is complete when the job NAME is there that waits for all its jobs: its nonce is LIFE, and it knows how many gates
-- the flow has (waits.lua).
local GATES_AT_ONCE, LOOK_AT_FLOW_MS = 20, 10000

-- flow_in(text): returns what is stored of a flow
local function flow_in(text)
  local life, state, gates, ended, until_ms, deadline = string.match(text, '^([^|]*)|(%l)|(%d+)|(%d+)|(%d+)|(%d+)$')
  return {life = life, state = state, gates = tonumber(gates), ended = tonumber(ended), until_ms = tonumber(until_ms),
    deadline_ms = tonumber(deadline)}
end

-- keep_flow(s, name, f, look_ms): writes what flow_in reads, and when the mover looks at it next.
local function keep_flow(s, name, f, look_ms)
  local flows, times = link_key(s, 'flows'), link_key(s, 'flow_times')
  redis.call('ZADD', times, string.format('%.0f', look_ms), name)
  redis.call('HSET', flows, name, string.format('%s|%s|%.0f|%.0f|%.0f|%.0f', f.life, f.state, f.gates, f.ended,
    f.until_ms, f.deadline_ms))
end

-- forget_flow(s, name): only the flow's own job is left.
local function forget_flow(s, name)
  local flows, times = link_key(s, 'flows'), link_key(s, 'flow_times')
  redis.call('HDEL', flows, name)
  redis.call('ZREM', times, name)
end

-- look_at(s, f): returns when the mover looks next at a flow that is being built
local function look_at(s, f) return math.min(f.until_ms, s.now + LOOK_AT_FLOW_MS) end

-- gate_of(name, n, life): returns the field of a flow's gate
local function gate_of(name, n, life) return string.format('%s~%.0f\31%s', name, n, life) end

-- is_complete(s, name, f): returns whether the job is there that waits for all jobs of the flow
local function is_complete(s, name, f)
  local record = redis.call('HGET', s.jobs, name)
  local w = record and nonce_of(record) == f.life and wait_of(s, name .. '\31' .. f.life)
  return w and w.gate == string.format('=%.0f', f.gates)
end

-- end_gates(s, name, f, reply): ends some of its gates, as f.state says, and has the mover tell who waits for them. Adds their fields
-- and texts to the reply. When none is left, the flow stays here until its deadline, or until it would have been withdrawn: a
-- call that is repeated, or comes late, finds what has become of it.
local function end_gates(s, name, f, reply)
  local key = link_key(s, 'followers')
  for n = f.ended, math.min(f.ended + GATES_AT_ONCE, f.gates) - 1 do
    local field = gate_of(name, n, f.life)
    local text = redis.call('HGET', key, field)
    if text then
      local gate = followers_in(text)
      -- When it is open, all of its jobs are there.
      if f.state == 'o' then gate.list = string.sub(string.gsub('\n' .. gate.list, '\n%d+\31', '\n0\31'), 2) end
      gate.how, gate.generation = f.state == 'o' and 'done' or 'cancelled', next_generation(s, gate)
      tell_followers(s, field, gate)
      reply[#reply + 1], reply[#reply + 2] = field, followers_text(gate)
    end
    f.ended = n + 1
  end
  local is_over = f.ended == f.gates
  keep_flow(s, name, f, is_over and (f.state == 'o' and f.deadline_ms > 0 and f.deadline_ms or f.until_ms) or s.now)
end
