-- include: clock, drop_job, due, group_states, groups, history, key_tickets, link_key, notify_mover, removal, requeue,
--   results, sequence, stored_format, waits

-- What becomes of a job that waits for others when it hears of them. `w` is from wait_of (waits.lua).
local LOOK_AFTER_MS, LOOK_AT_LEAST_MS = 30000, 600000
-- The letter of each ending; '.' = it goes on.
local ENDINGS = {done = 'o', dead = 'd', cancelled = 'c', replaced = 'r', expired = 'e', purged = 'p', archived = 'a'}
local MORE_ENDINGS = {left = 'g', lost = 'l', [''] = '.'}
local GOES_ON, DONE = 46, 111 -- the bytes of . and o

-- read_topic(s, injected, history_cap): reads what a call needs that may start jobs that wait, or cancel them.
local function read_topic(s, injected, history_cap)
  local topic = redis.call('HMGET', s.settings, 'groups', 'leaving', 'format', 'key_limit', 'linked', 'results', 'paused',
    'rate')
  check_format(topic[3])
  s.now, s.history_cap, s.groups, s.leaving, s.key_limit = now_ms(injected), history_cap, names(topic[1]), topic[2], topic[4]
  s.on_removed = after_removal(s, nil, topic[5]) -- no id of such a job stays taken
  s.results, s.waits = results_in(topic[6]), waits(topic[7], topic[8])
end

-- dependent(s, id, nonce): reads a job that waits, or has waited, for others.
-- returns what wait_of returns, and the job; nil = it has ended
local function dependent(s, id, nonce)
  local record = redis.call('HGET', s.jobs, id)
  if not record or nonce_of(record) ~= nonce then return nil end
  return wait_of(s, id .. '\31' .. nonce), {id = id, record = record}
end

-- states_at(s, w, n): reads how the n-th PER_FIELD of those it waits for have ended. Adds to s.states_bytes.
-- returns {letters={i = byte}, generations={i = generation}}
local function states_at(s, w, n)
  if not w.states[n] then
    local key = link_key(s, 'dependencies')
    local text = redis.call('HGET', key, w.member .. '\31' .. n .. '\31s') or ''
    s.states_bytes = (s.states_bytes or 0) + #text
    local letters, rest = string.match(text, '^([%l.]*)(.*)$')
    w.states[n] = {letters = {string.byte(letters, 1, -1)}, generations = {}}
    for i, generation in string.gmatch(rest, ',(%d+)=(%d+)') do w.states[n].generations[tonumber(i)] = tonumber(generation) end
  end
  return w.states[n]
end

-- keep_states(s, w): writes those that have changed.
local function keep_states(s, w)
  local key = link_key(s, 'dependencies')
  for n, states in pairs(w.states) do
    if states.is_changed then
      local out = {string.char(unpack(states.letters))}
      for i, generation in pairs(states.generations) do out[#out + 1] = string.format(',%d=%.0f', i, generation) end
      redis.call('HSET', key, w.member .. '\31' .. n .. '\31s', table.concat(out))
    end
  end
end

-- failures_in(letter): returns 1 if this byte says that a job has failed, otherwise 0
local function failures_in(letter) return letter ~= GOES_ON and letter ~= DONE and 1 or 0 end

-- note_waits(s, waiting, event): a row in the history of each of these jobs, for each group.
local function note_waits(s, waiting, event)
  local rows = {}
  for _, job in ipairs(waiting) do
    for _, group in ipairs(job.groups) do
      rows[#rows + 1] = rare_row(s, event, {group = group, id = job.id, record = job.record}, {})
    end
  end
  remember(s, rows)
end

-- block(s, w, job): the job can't start while one of those that it waits for has failed; or no longer has to wait for a kick.
local function block(s, w, job)
  local blocked = link_key(s, 'blocked')
  if w.failed > 0 then
    if redis.call('ZADD', blocked, 'NX', string.format('%.0f', s.now), w.member) == 1 then note_waits(s, {job}, 'blocked') end
  else
    redis.call('ZREM', blocked, w.member)
  end
end

-- is_withdrawn(s, w): returns whether the job belongs to a flow of which nothing starts
local function is_withdrawn(s, w)
  return w.gate == '+' and w.failed > 0 and failures_in(states_at(s, w, 0).letters[1]) == 1
end

-- waits_for_gate_alone(w): returns whether it waits for nothing but the opening of its flow
local function waits_for_gate_alone(w) return w.gate == '+' and w.total == 1 end

-- act_on(s, w, job): the job is to start, is blocked or is cancelled, if its news says so.
-- returns 0 = it was cancelled, 2 = it starts, when start_jobs is called, 1 = it waits
local function act_on(s, w, job)
  job.groups, job.states = group_states(s, job)
  if #job.groups == 0 then -- those that it concerns are leaving, and it ends with them (leave_group)
    keep_wait(s, w)
    return 1
  end
  local is_cancelled = w.failed > 0 and w.on_failure == 'cancel' or is_withdrawn(s, w)
  local has_ended = not is_cancelled and w.done + (w.on_failure == 'run' and w.failed or 0) == w.total
  if has_ended then
    s.starting = s.starting or {}
    s.starting[#s.starting + 1] = {w = w, job = job}
    return 2
  elseif is_cancelled then
    s.ended_as = 'cancelled'
    return drop_job(s, job, {}) == 1 and 0 or 1
  else
    keep_wait(s, w)
    if w.on_failure == 'block' then block(s, w, job) end
  end
  return 1
end

-- make_due(s, members, due): jobs that no group has begun get this due time, each in the form of the bucket. If they are
-- due, they are ready at once, as in enqueue.
local function make_due(s, members, due)
  local head, is_first = head_ms(s.bucket), false
  if due > s.now or s.waits or head and head <= s.now then
    local delayed, due_text = {}, string.format('%.0f', due)
    for i, one in ipairs(members) do delayed[2 * i - 1], delayed[2 * i] = due_text, one end
    redis.call('ZADD', s.bucket, unpack(delayed))
    if not head or due < head then notify_mover(s.wake, due) end
    return
  end
  s.made_ready = true
  for _, one in ipairs(members) do redis.call('XADD', s.ready, '*', 'j', one) end
  for _, group in ipairs(s.groups) do
    is_first = redis.call('HINCRBY', s.counts, 'ready:' .. group, #members) == #members or is_first
  end
  if is_first and not is_watched(redis.call('HGET', s.settings, 'watch_until'), s.now) then notify_mover(s.wake, s.now) end
end

-- put_back(s, starting): takes those out of s.starting that some group has begun, or that have a key in a topic that limits its
-- keys, and gives each of them its due time.
-- returns the others
local function put_back(s, starting)
  local others = {}
  for _, one in ipairs(starting) do
    local is_alone = next(one.job.states) ~= nil or s.key_limit and s.key_limit ~= '0' and key_of(one.job.record)
    if is_alone then set_due(s, one.job, s.now + one.w.delay) else others[#others + 1] = one end
  end
  return others
end

-- give_due_times(s, starting): what set_due does, for all of them with as few commands as one job takes: they are many when
-- a flow opens.
local function give_due_times(s, starting)
  local others = put_back(s, starting)
  if #others == 0 then return end
  local before, gone, records, by_delay = reserve(s.counts, #others), {}, {}, {}
  for i, one in ipairs(others) do
    local id, record, delay, order = one.job.id, one.job.record, one.w.delay, later_order(before + i)
    gone[i], by_delay[delay] = string.sub(record, 1, 12) .. id, by_delay[delay] or {}
    records[2 * i - 1], records[2 * i] = id, order .. string.format('%.0f', s.now + delay) .. string.sub(record, 26)
    table.insert(by_delay[delay], order .. id)
  end
  redis.call('ZREM', s.bucket, unpack(gone))
  redis.call('HSET', s.jobs, unpack(records))
  for delay, members in pairs(by_delay) do make_due(s, members, s.now + delay) end
end

-- start_jobs(s): starts the jobs of s.starting (act_on). Of one that waited for nothing but the opening of its flow, nothing
-- needs to be known any more.
local function start_jobs(s)
  local starting = s.starting or {}
  if #starting == 0 then return end
  local looks, blocked, dependencies = link_key(s, 'dependents'), link_key(s, 'blocked'), link_key(s, 'dependencies')
  local look, fields, known, members, over, unblocked = string.format('%.0f', s.now + LOOK_AFTER_MS), {}, {}, {}, {}, {}
  for _, one in ipairs(starting) do
    local w = one.w
    if waits_for_gate_alone(w) then
      local n = #fields
      over[#over + 1], fields[n + 1], fields[n + 2], fields[n + 3] = w.member, w.member, w.member .. '\0310', w.member .. '\0310\31s'
    else
      w.looks = 0
      keep_wait(s, w)
      known[#known + 1], known[#known + 2] = look, w.member
      members[#members + 1], unblocked[#unblocked + 1] = w.member, one.job
    end
  end
  if #unblocked > 0 then
    redis.call('ZADD', looks, unpack(known))
    redis.call('ZREM', blocked, unpack(members))
  end
  redis.call('HINCRBY', s.counts, 'waiting_for_jobs', -#starting)
  give_due_times(s, starting)
  if #over > 0 then
    redis.call('HDEL', dependencies, unpack(fields))
    redis.call('ZREM', looks, unpack(over))
  end
  note_waits(s, unblocked, 'unblocked')
end

-- look_again_at(s, w): returns when the mover looks at it next: seldom, if it waits long
local function look_again_at(s, w)
  return s.now + math.min(LOOK_AFTER_MS * 2 ^ math.min(w.looks, 10), LOOK_AT_LEAST_MS)
end
