-- include: link_key

-- A job that waits for other jobs (`after`) is a delayed job whose due time is NEVER. When they have ended, it gets a due
-- time of its own, and is like any other.
local NEVER = '9999999999999'

-- is_waiting(record): returns whether the job waits for other jobs
local function is_waiting(record) return string.sub(record, 13, 25) == NEVER end

-- nonce_of(record): returns the nonce of a job
local function nonce_of(record) return string.match(record, '^%d+\n%d+\n[^\n]*\n[^\n]*\n([^\n]*)\n', 13) end

-- life_of(record): returns what tells a job from a later one with its id: its nonce; or, as the jobs of schedules have none,
-- when it was made
local function life_of(record)
  local created, nonce = string.match(record, '^%d+\n(%d+)\n[^\n]*\n[^\n]*\n([^\n]*)\n', 13)
  return nonce ~= '' and nonce or '@' .. created
end

-- What it waits for is in the HASH `dependencies`, under ID\31NONCE, so that a later job with the id has nothing to do with it:
--   ID\31NONCE            total|done|failed|delay_ms|on_failure|looks; a + behind on_failure: the first of them is a gate of its
--                         flow (flows.lua), and if that fails, the job is cancelled; =N: it is a flow's own job, and the
--                         flow has N gates, and a ! behind that: it was cancelled, and nothing is added to it. A + behind
--                         looks: it also waits for children of one of those that it waited for (followers.lua)
--   ID\31NONCE\31N        the N-th PER_FIELD of those that it waits for, from 0; lines topic\31shard\31life\31id; a + before the
--                         life: it was added, as a child
--   ID\31NONCE\31N\31s    how each of them has ended: a letter for each (ENDINGS), then `,i=generation` of some of them
--   ID\31NONCE\31+HH      where those are that were added, and whose lives begin with these two hexadecimal digits: +LIFE=index;
-- total, done, failed  how many it waits for, are done, and have failed; on_failure: block, run or cancel
-- looks                how often the mover has looked at it
-- ZSET `dependents`: ID\31NONCE -> when the mover looks at it next, ms. ZSET `blocked`: ID\31NONCE -> since when.
local PER_FIELD = 500

-- wait_of(s, member): reads what a job waits for.
-- returns {member=, total=, done=, failed=, delay=, on_failure=, gate=, looks=, added=, states={}}; nil = there is nothing
local function wait_of(s, member)
  local key = link_key(s, 'dependencies')
  local text = redis.call('HGET', key, member)
  if not text then return nil end
  local w = {member = member, states = {}}
  w.total, w.done, w.failed, w.delay, w.on_failure, w.gate, w.looks, w.added =
    string.match(text, '^(%d+)|(%d+)|(%d+)|(%d+)|(%l+)([+=]?%d*!?)|(%d+)(%+?)$')
  for _, name in ipairs({'total', 'done', 'failed', 'delay', 'looks'}) do w[name] = tonumber(w[name]) end
  return w
end

-- is_own(w): returns whether it is a flow's own job that waits
local function is_own(w) return string.sub(w.gate, 1, 1) == '=' end

-- keep_wait(s, w): writes what wait_of reads.
local function keep_wait(s, w)
  local key = link_key(s, 'dependencies')
  redis.call('HSET', key, w.member, string.format('%.0f|%.0f|%.0f|%.0f|%s%s|%.0f%s', w.total, w.done, w.failed, w.delay,
    w.on_failure, w.gate, w.looks, w.added))
end

-- forget_waits(s, members): removes all that is known of what jobs waited for; at least one job.
local function forget_waits(s, members)
  local key, looks, blocked = link_key(s, 'dependencies'), link_key(s, 'dependents'), link_key(s, 'blocked')
  for _, member in ipairs(members) do
    local w, fields = wait_of(s, member), {member}
    for n = 0, w and math.ceil(w.total / PER_FIELD) - 1 or -1 do
      fields[#fields + 1] = member .. '\31' .. n
      fields[#fields + 1] = member .. '\31' .. n .. '\31s'
    end
    for n = 0, w and w.added ~= '' and 255 or -1 do fields[#fields + 1] = string.format('%s\31+%02x', member, n) end
    redis.call('HDEL', key, unpack(fields))
  end
  redis.call('ZREM', looks, unpack(members))
  redis.call('ZREM', blocked, unpack(members))
  forget_links(s)
end

-- stop_waiting_for(s, job): a job leaves the pool while it waits for others, perhaps.
local function stop_waiting_for(s, job)
  if not is_waiting(job.record) then return end
  redis.call('HINCRBY', s.counts, 'waiting_for_jobs', -1)
  forget_waits(s, {job.id .. '\31' .. nonce_of(job.record)})
end

-- is_blocked(s, job): returns whether the job can't start because another one has failed
local function is_blocked(s, job)
  local blocked = link_key(s, 'blocked')
  return redis.call('ZSCORE', blocked, job.id .. '\31' .. nonce_of(job.record)) and true or false
end
