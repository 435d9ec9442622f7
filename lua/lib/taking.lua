-- include: taken

-- rule_in(text): reads a job's rule, 'unique_for_ms|times|per_ms|at_most_ms'; each may be ''. 'f' before the first: it
-- counts from when the job has left the pool. '' = it has none.
-- returns {is_given=, after=, unique_for=, times=, per=, at_most=}, the last four numbers or nil
local function rule_in(text)
  local after, unique_for, times, per, at_most = string.match(text, '^(f?)(%d*)|(%d*)|(%d*)|(%d*)$')
  return {is_given = text ~= '', after = after == 'f', unique_for = tonumber(unique_for), times = tonumber(times), per = tonumber(per),
    at_most = tonumber(at_most)}
end

-- taken_of(s, id, lives): reads what is known of an id. If it was written in the future, Redis's clock has been set
-- back: then its times count from now, or the id would be taken until the clock has caught up. lives: whether a job has
-- the id; if not, and no script noted that it left, it was lost: as if it had left now.
-- returns what parse_taken returns; nil = nothing, or nothing that still matters
local function taken_of(s, id, lives)
  local text = redis.call('HGET', s.taken, id)
  local t = text and parse_taken(text)
  if not t then return nil end
  local ahead, lost = math.max(0, t.noted - s.now), t.until_ms >= AFTER_MS and not lives
  if ahead > 0 then
    t.over = math.max(0, t.over - ahead)
    if t.until_ms < AFTER_MS then t.until_ms = math.max(0, t.until_ms - ahead) end
    for i = 1, #t.times do t.times[i] = t.times[i] - ahead end
  end
  if lost then t.until_ms = s.now + t.until_ms - AFTER_MS end
  if ahead > 0 or lost then keep_taken(s, id, t) end
  return math.max(t.over, t.until_ms) > s.now and t or nil
end

-- free_ms(t, rule): returns when the rule's rate lets another job have the id; 0 if it has no rate
local function free_ms(t, rule)
  local first = rule.times and t.times[#t.times - rule.times + 1]
  return first and first + rule.per or 0
end

-- take_id(s, id, t, new): notes that a new job got the id. t: from taken_of. new = {rule=, nonce=, due=}
local function take_id(s, id, t, new)
  local rule, taken = new.rule, {nonce = new.nonce, created = s.now, due = new.due, times = {}}
  taken.until_ms = rule.unique_for and (rule.after and AFTER_MS or s.now) + rule.unique_for or 0
  taken.latest = rule.at_most and new.due + rule.at_most or 0
  local times = rule.times and s.now + rule.per or 0
  if t then
    -- Of a call without a rate, too, so that it does not hide earlier jobs from the next one that has one.
    local first = rule.times and math.max(1, #t.times - rule.times + 2) or 1
    for i = first, #t.times do taken.times[#taken.times + 1] = t.times[i] end
    times = math.max(times, t.over)
  end
  if rule.times then taken.times[#taken.times + 1] = s.now end
  taken.over = math.max(taken.latest, times)
  if math.max(taken.over, taken.until_ms) > s.now or t then keep_taken(s, id, taken) end
end

-- trim_taken(s, most): forgets at most so many ids that are over, and has both keys expire when all of them are.
-- They are not used again after that: they may be empty.
-- returns those that it has forgotten, {id = true}
local function trim_taken(s, most)
  local old, gone = redis.call('ZRANGEBYSCORE', s.taken_until, '-inf', string.format('%.0f', s.now), 'LIMIT', 0, most), {}
  expire_taken(s)
  for _, id in ipairs(old) do gone[id] = true end
  if #old > 0 then
    redis.call('HDEL', s.taken, unpack(old))
    redis.call('ZREM', s.taken_until, unpack(old))
  end
  return gone
end
