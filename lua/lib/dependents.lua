-- include: clock, drop_job, due, group_states, groups, history, link_key, removal, results, stored_format, waits

-- What becomes of a job that waits for others when it hears of them. `w` is from wait_of (waits.lua).
local LOOK_AFTER_MS, LOOK_AT_LEAST_MS = 30000, 600000
-- The letter of each ending; '.' = it goes on.
local ENDINGS = {done = 'o', dead = 'd', cancelled = 'c', replaced = 'r', expired = 'e', purged = 'p', archived = 'a'}
local MORE_ENDINGS = {left = 'g', lost = 'l', [''] = '.'}

-- read_topic(s, injected, history_cap): reads what a call needs that may start jobs that wait, or cancel them.
local function read_topic(s, injected, history_cap)
  local topic = redis.call('HMGET', s.settings, 'groups', 'leaving', 'format', 'key_limit', 'linked', 'results')
  check_format(topic[3])
  s.now, s.history_cap, s.groups, s.leaving, s.key_limit = now_ms(injected), history_cap, names(topic[1]), topic[2], topic[4]
  s.on_removed = after_removal(s, nil, topic[5]) -- no id of such a job stays taken
  s.results = results_in(topic[6])
end

-- dependent(s, id, nonce): reads a job that waits, or has waited, for others.
-- returns what wait_of returns, and the job; nil = it has ended
local function dependent(s, id, nonce)
  local record = redis.call('HGET', s.jobs, id)
  if not record or nonce_of(record) ~= nonce then return nil end
  return wait_of(s, id .. '\31' .. nonce), {id = id, record = record}
end

-- states_at(s, w, n): reads how the n-th PER_FIELD of those it waits for have ended. Adds to s.states_bytes.
-- returns {letters={byte, ...}, generations={i = generation}}
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

-- failures_in(letter): returns 1 if it says that a job has failed, otherwise 0
local function failures_in(letter) return letter ~= '.' and letter ~= 'o' and 1 or 0 end

-- hear(s, w, news): one of those that it waits for has ended, or goes on. news = {index=, how=, generation=, seen=}. What is older
-- than what is known is ignored, and what is done stays done. seen: the generation that was known when its shard was asked,
-- because that shard may have lost what is known here; nil = it told by itself.
local function hear(s, w, news)
  local states = states_at(s, w, math.floor(news.index / PER_FIELD))
  local i = news.index % PER_FIELD + 1
  local before, known = states.letters[i] and string.char(states.letters[i]), states.generations[i] or 0
  local letter = ENDINGS[news.how] or MORE_ENDINGS[news.how]
  if not before or before == 'o' or not letter then return end
  if news.generation <= known and known ~= news.seen or letter == before and news.generation == known then return end
  w.failed = w.failed + failures_in(letter) - failures_in(before)
  if letter == 'o' then w.done = w.done + 1 end
  states.letters[i] = string.byte(letter)
  states.generations[i] = letter ~= 'o' and news.generation or nil
  states.is_changed, w.is_changed = true, true
end

-- note_wait(s, job, event): a row in the history, for each group.
local function note_wait(s, job, event)
  local rows = {}
  for i, group in ipairs(job.groups) do
    rows[i] = rare_row(s, event, {group = group, id = job.id, record = job.record}, {})
  end
  remember(s, rows)
end

-- block(s, w, job): the job can't start while one of those that it waits for has failed; or no longer has to wait for a kick.
local function block(s, w, job)
  local blocked = link_key(s, 'blocked')
  if w.failed > 0 then
    if redis.call('ZADD', blocked, 'NX', string.format('%.0f', s.now), w.member) == 1 then note_wait(s, job, 'blocked') end
  else
    redis.call('ZREM', blocked, w.member)
  end
end

-- is_withdrawn(s, w): returns whether the job belongs to a flow of which nothing starts
local function is_withdrawn(s, w)
  return w.gate == '+' and w.failed > 0 and failures_in(string.char(states_at(s, w, 0).letters[1] or 46)) == 1
end

-- act_on(s, w, job): the job starts, is blocked or is cancelled, if its news says so.
-- returns 0 = it was cancelled, 2 = it starts, 1 = it waits
local function act_on(s, w, job)
  job.groups, job.states = group_states(s, job)
  if #job.groups == 0 then -- those that it concerns are leaving, and it ends with them (leave_group)
    keep_wait(s, w)
    return 1
  end
  local is_cancelled = w.failed > 0 and w.on_failure == 'cancel' or is_withdrawn(s, w)
  local has_ended = not is_cancelled and w.done + (w.on_failure == 'run' and w.failed or 0) == w.total
  if has_ended then
    local looks, blocked = link_key(s, 'dependents'), link_key(s, 'blocked')
    w.looks = 0
    keep_wait(s, w)
    redis.call('ZADD', looks, string.format('%.0f', s.now + LOOK_AFTER_MS), w.member)
    redis.call('ZREM', blocked, w.member)
    redis.call('HINCRBY', s.counts, 'waiting_for_jobs', -1)
    set_due(s, job, s.now + w.delay)
    note_wait(s, job, 'unblocked')
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

-- look_again_at(s, w): returns when the mover looks at it next: seldom, if it waits long
local function look_again_at(s, w)
  return s.now + math.min(LOOK_AFTER_MS * 2 ^ math.min(w.looks, 10), LOOK_AT_LEAST_MS)
end
