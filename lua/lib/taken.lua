-- Ids that are taken for longer than their jobs live: HASH `taken`, id -> text
--   over_ms|until_ms|latest_ms|noted_ms|nonce|created_ms|due_ms|times
-- over_ms    when none of the rest matters any more; the later of it and until_ms is the id's score in the ZSET
--            `taken_until`
-- until_ms   unique_for: no other job gets the id before; 0 = none; from AFTER_MS on: the job lives, and from its end on
--            the id is taken for what exceeds AFTER_MS
-- latest_ms  at_most: the job with this created_ms is not postponed beyond it; 0 = none
-- noted_ms   when this was written
-- nonce, created_ms, due_ms  of the last job that got the id
-- times      rate_of_id: when jobs got the id, 'ms,ms,', oldest first
local TAKEN = '^(%d+)|(%d+)|(%d+)|(%d+)|([^|]*)|(%d+)|(%d+)|(.*)$'
local KEPT_MS = 60000
local AFTER_MS = 1000000000000000

-- rule_in(text): reads a job's rule, 'unique_for_ms|times|per_ms|at_most_ms'; each may be ''. 'f' before the first: it
-- counts from when the job has left the pool. '' = it has none.
-- returns {is_given=, after=, unique_for=, times=, per=, at_most=}, the last four numbers or nil
local function rule_in(text)
  local after, unique_for, times, per, at_most = string.match(text, '^(f?)(%d*)|(%d*)|(%d*)|(%d*)$')
  return {is_given = text ~= '', after = after == 'f', unique_for = tonumber(unique_for), times = tonumber(times), per = tonumber(per),
    at_most = tonumber(at_most)}
end

-- parse_taken(text): returns {over=, until_ms=, latest=, noted=, nonce=, created=, due=, times={ms, ...}}; nil = it
-- can't be read. An error here would end a claim half way.
local function parse_taken(text)
  local t, times = {times = {}}, nil
  t.over, t.until_ms, t.latest, t.noted, t.nonce, t.created, t.due, times = string.match(text, TAKEN)
  if not times then return nil end
  for _, name in ipairs({'over', 'until_ms', 'latest', 'noted', 'created', 'due'}) do t[name] = tonumber(t[name]) end
  for ms in string.gmatch(times, '%d+') do t.times[#t.times + 1] = tonumber(ms) end
  return t
end

-- keep_taken(k, id, t, now): writes what is known of a taken id.
local function keep_taken(k, id, t, now)
  local times = {}
  for i, ms in ipairs(t.times) do times[i] = string.format('%.0f,', ms) end
  redis.call('HSET', k.taken, id, string.format('%.0f|%.0f|%.0f|%.0f|%s|%.0f|%.0f|', t.over, t.until_ms, t.latest, now,
    t.nonce, t.created, t.due) .. table.concat(times))
  redis.call('ZADD', k.taken_until, string.format('%.0f', math.max(t.over, t.until_ms)), id)
end

-- forget_taken(k, id): forgets what was known of an id.
local function forget_taken(k, id)
  if redis.call('HDEL', k.taken, id) == 1 then redis.call('ZREM', k.taken_until, id) end
end

-- expire_taken(k, now): has both keys expire when all in them is over.
local function expire_taken(k, now)
  local last = redis.call('ZRANGE', k.taken_until, -1, -1, 'WITHSCORES')[2]
  if not last then return end
  for _, key in ipairs({k.taken, k.taken_until}) do
    if tonumber(last) >= AFTER_MS then redis.call('PERSIST', key)
    else redis.call('PEXPIRE', key, string.format('%.0f', math.max(1, tonumber(last) - now + KEPT_MS))) end
  end
end

-- leaving_pool(asked, taken, taken_until, now): what to do when jobs leave the pool. asked: settings field
-- `after_finish`, which is there as soon as an id is to stay taken from then on.
-- returns a function that is called with their ids; nil = there is nothing to do
local function leaving_pool(asked, taken, taken_until, now)
  if not asked then return nil end
  local keys = {taken = taken, taken_until = taken_until}
  return function(ids)
    for i, text in ipairs(redis.call('HMGET', taken, unpack(ids))) do
      local t = text and parse_taken(text)
      if t and t.until_ms >= AFTER_MS then
        t.until_ms = now + t.until_ms - AFTER_MS
        keep_taken(keys, ids[i], t, now)
      end
    end
    expire_taken(keys, now)
  end
end

-- taken_of(k, id, now, lives): reads what is known of an id. If it was written in the future, Redis's clock has been set
-- back: then its times count from now, or the id would be taken until the clock has caught up. lives: whether a job has
-- the id; if not, and nobody was told that it left, it was lost: as if it had left now.
-- returns what parse_taken returns; nil = nothing, or nothing that still matters
local function taken_of(k, id, now, lives)
  local text = redis.call('HGET', k.taken, id)
  local t = text and parse_taken(text)
  if not t then return nil end
  local ahead, lost = math.max(0, t.noted - now), t.until_ms >= AFTER_MS and not lives
  if ahead > 0 then
    t.over = math.max(0, t.over - ahead)
    if t.until_ms < AFTER_MS then t.until_ms = math.max(0, t.until_ms - ahead) end
    for i = 1, #t.times do t.times[i] = t.times[i] - ahead end
  end
  if lost then t.until_ms = now + t.until_ms - AFTER_MS end
  if ahead > 0 or lost then keep_taken(k, id, t, now) end
  return math.max(t.over, t.until_ms) > now and t or nil
end

-- free_ms(t, rule): returns when the rule's rate lets another job have the id; 0 if it has no rate
local function free_ms(t, rule)
  local first = rule.times and t.times[#t.times - rule.times + 1]
  return first and first + rule.per or 0
end

-- take_id(k, id, t, rule, nonce, now, due): notes that a new job got the id. t: from taken_of.
local function take_id(k, id, t, rule, nonce, now, due)
  local new = {nonce = nonce, created = now, due = due, times = {}}
  new.until_ms = rule.unique_for and (rule.after and AFTER_MS or now) + rule.unique_for or 0
  new.latest = rule.at_most and due + rule.at_most or 0
  local times = rule.times and now + rule.per or 0
  if t then
    -- Of a call without a rate, too, so that it does not hide earlier jobs from the next one that has one.
    local first = rule.times and math.max(1, #t.times - rule.times + 2) or 1
    for i = first, #t.times do new.times[#new.times + 1] = t.times[i] end
    times = math.max(times, t.over)
  end
  if rule.times then new.times[#new.times + 1] = now end
  new.over = math.max(new.latest, times)
  if math.max(new.over, new.until_ms) > now or t then keep_taken(k, id, new, now) end
end

-- trim_taken(k, now, most): forgets at most so many ids that are over, and has both keys expire when all of them are.
-- They are not used again after that: they may be empty.
-- returns those that it has forgotten, {id = true}
local function trim_taken(k, now, most)
  local old, gone = redis.call('ZRANGEBYSCORE', k.taken_until, '-inf', string.format('%.0f', now), 'LIMIT', 0, most), {}
  expire_taken(k, now)
  for _, id in ipairs(old) do gone[id] = true end
  if #old > 0 then
    redis.call('HDEL', k.taken, unpack(old))
    redis.call('ZREM', k.taken_until, unpack(old))
  end
  return gone
end
