-- Ids that are taken for longer than their jobs live: HASH `taken`, id -> text
--   over_ms|until_ms|latest_ms|noted_ms|nonce|created_ms|due_ms|times
-- over_ms    when none of it matters any more; also the id's score in the ZSET `taken_until`
-- until_ms   unique_for: no other job gets the id before; 0 = none
-- latest_ms  at_most: the job with this created_ms is not postponed beyond it; 0 = none
-- noted_ms   when this was written
-- nonce, created_ms, due_ms  of the last job that got the id
-- times      rate_of_id: when jobs got the id, 'ms,ms,', oldest first
local TAKEN = '^(%d+)|(%d+)|(%d+)|(%d+)|([^|]*)|(%d+)|(%d+)|(.*)$'
local KEPT_MS = 60000

-- rule_in(text): reads a job's rule, 'unique_for_ms|times|per_ms|at_most_ms'; each may be ''.
-- returns {unique_for=, times=, per=, at_most=}, each of them a number or nil
local function rule_in(text)
  local unique_for, times, per, at_most = string.match(text, '^(%d*)|(%d*)|(%d*)|(%d*)$')
  return {unique_for = tonumber(unique_for), times = tonumber(times), per = tonumber(per), at_most = tonumber(at_most)}
end

-- keep_taken(k, id, t, now): writes what is known of a taken id.
-- k = {taken=, taken_until=}
local function keep_taken(k, id, t, now)
  local times = {}
  for i, ms in ipairs(t.times) do times[i] = string.format('%.0f,', ms) end
  redis.call('HSET', k.taken, id, string.format('%.0f|%.0f|%.0f|%.0f|%s|%.0f|%.0f|', t.over, t.until_ms, t.latest, now,
    t.nonce, t.created, t.due) .. table.concat(times))
  redis.call('ZADD', k.taken_until, string.format('%.0f', t.over), id)
end

-- taken_of(k, id, now): reads what is known of an id. If it was written in the future, Redis's clock has been set back:
-- then its times count from now, or the id would be taken until the clock has caught up.
-- k = {taken=, taken_until=}
-- returns {over=, until_ms=, latest=, nonce=, created=, due=, times=}; nil = nothing, or nothing that still matters
local function taken_of(k, id, now)
  local text, t, noted = redis.call('HGET', k.taken, id), {times = {}}, nil
  if not text then return nil end
  local times
  t.over, t.until_ms, t.latest, noted, t.nonce, t.created, t.due, times = string.match(text, TAKEN)
  for _, name in ipairs({'over', 'until_ms', 'latest', 'created', 'due'}) do t[name] = tonumber(t[name]) end
  local ahead = math.max(0, noted - now)
  for ms in string.gmatch(times, '%d+') do t.times[#t.times + 1] = ms - ahead end
  if ahead > 0 then
    t.over, t.until_ms = t.over - ahead, math.max(0, t.until_ms - ahead)
    keep_taken(k, id, t, now)
  end
  return t.over > now and t or nil
end

-- free_ms(t, rule): returns when the rule's rate lets another job have the id; 0 if it has no rate
local function free_ms(t, rule)
  local first = rule.times and t.times[#t.times - rule.times + 1]
  return first and first + rule.per or 0
end

-- take_id(k, id, t, rule, nonce, now, due): notes that a new job got the id. t: from taken_of.
-- k = {taken=, taken_until=}
local function take_id(k, id, t, rule, nonce, now, due)
  local new = {nonce = nonce, created = now, due = due, times = {}}
  new.until_ms = rule.unique_for and now + rule.unique_for or 0
  new.latest = rule.at_most and due + rule.at_most or 0
  local times = rule.times and now + rule.per or 0
  if t and #t.times > 0 then
    -- Of a call without a rate, too, so that it does not hide earlier jobs from the next one that has one.
    local first = rule.times and math.max(1, #t.times - rule.times + 2) or 1
    for i = first, #t.times do new.times[#new.times + 1] = t.times[i] end
    times = math.max(times, t.over)
  end
  if rule.times then new.times[#new.times + 1] = now end
  new.over = math.max(new.until_ms, new.latest, times)
  if new.over > now or t then keep_taken(k, id, new, now) end
end

-- trim_taken(k, now, most): forgets at most so many ids that are over, and has both keys expire when all of them are.
-- k = {taken=, taken_until=}
local function trim_taken(k, now, most)
  local old = redis.call('ZRANGEBYSCORE', k.taken_until, '-inf', string.format('%.0f', now), 'LIMIT', 0, most)
  if #old > 0 then
    redis.call('HDEL', k.taken, unpack(old))
    redis.call('ZREM', k.taken_until, unpack(old))
  end
  local last = redis.call('ZRANGE', k.taken_until, -1, -1, 'WITHSCORES')[2]
  if not last then return end
  local left = string.format('%.0f', tonumber(last) - now + KEPT_MS)
  redis.call('PEXPIRE', k.taken, left)
  redis.call('PEXPIRE', k.taken_until, left)
end
