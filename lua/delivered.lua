-- delivered: notes that followers were told how a job has ended, and when to tell them again; forgets those that have ended.
-- keys: settings
-- ARGV[1] now_ms or ''
-- ARGV[2..] per job: field of `followers`, the generation that was told, when to tell again, ms; the followers that have ended
-- returns how many jobs have followers
-- flags: allow-oom
-- include: stored_format, clock, results, link_key, followers
local YOUNG_MS = 60000 -- its enqueue_after may be on the way
local topic = redis.call('HMGET', settings, 'format', 'results')
check_format(topic[1])
local s = shard(KEYS)
s.now, s.results = now_ms(ARGV[1]), results_in(topic[2])
local followers, endings, dependents = link_key(s, 'followers'), link_key(s, 'endings'), link_key(s, 'dependents')

-- The followers that are left of f, after these have gone; and when to deliver the ending again.
local function without(f, gone, again)
  for line in string.gmatch(gone, '[^\n]+') do
    local from, to = string.find(f.list, line .. '\n', 1, true)
    local attached = tonumber(string.match(line, '^%d+'))
    if from and attached <= s.now and attached > s.now - YOUNG_MS then again = math.min(again, s.now + 1000)
    elseif from then f.list = string.sub(f.list, 1, from - 1) .. string.sub(f.list, to + 1) end
  end
  return again
end

local over, due = {}, {}
for i = 2, #ARGV, 4 do
  local field, text = ARGV[i], redis.call('HGET', followers, ARGV[i])
  local f, again = text and followers_in(text), tonumber(ARGV[i + 2])
  if f and ARGV[i + 3] ~= '' then
    local before = f.list
    again = without(f, ARGV[i + 3], again)
    if f.list ~= before and f.list ~= '' then keep_followers(s, field, f) end
  end
  local id = string.match(field, '^[^\31]*')
  if f and f.list ~= '' then hold_results(s, id)
  elseif f then release_results(s, id, f.how == '' and s.now or f.generation) end
  if not f or f.list == '' then
    over[#over + 1] = field
  elseif string.format('%.0f', f.generation) == ARGV[i + 1] then
    -- Who goes on has told of it; when it ends, that is told.
    if f.how == '' and again > s.now + 1000 then redis.call('ZREM', endings, field)
    else due[#due + 1], due[#due + 2] = string.format('%.0f', again), field end
  end
end
if #due > 0 then redis.call('ZADD', endings, unpack(due)) end
if #over > 0 then
  redis.call('ZREM', endings, unpack(over))
  redis.call('HDEL', followers, unpack(over))
end
local left = redis.call('HLEN', followers)
if left == 0 and redis.call('EXISTS', dependents) == 0 then redis.call('HDEL', settings, 'linked') end
return left
