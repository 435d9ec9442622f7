-- delivered: notes that followers were notified how a job has ended, and when to tell them again; forgets those that have ended.
-- If the groups have left the topic in whose archive a job was, the followers are notified of that next.
-- keys: settings, progress
-- ARGV[1] now_ms or ''
-- ARGV[2..] per job: field of `followers`, the generation that was reported, when to tell again, ms; the followers that have ended
-- returns how many jobs have followers
-- flags: allow-oom
-- include: archived, children, clock, followers, followers_of, groups, link_key, results, stored_format
local YOUNG_MS = 60000 -- its enqueue_after may be on the way; not if it was attached at 0
local topic = redis.call('HMGET', settings, 'format', 'results', 'groups')
check_format(topic[1])
local s = shard(KEYS)
s.now, s.results, s.groups = now_ms(ARGV[1]), results_in(topic[2]), names(topic[3])
local followers, endings = link_key(s, 'followers'), link_key(s, 'endings')

-- Takes those that have ended off f.list. Returns in how many ms to tell again those that may only not be there yet, later each
-- time; nil = there are none.
local function without(f, gone)
  if gone == '' then return nil end
  local has_ended, kept, soon = {}, {}, nil
  for line in string.gmatch(gone, '[^\n]+') do has_ended[line] = true end
  for line in string.gmatch(f.list, '[^\n]+') do
    local age = has_ended[line] and s.now - tonumber(string.match(line, '^%d+'))
    local is_young = age and age >= 0 and age < YOUNG_MS
    if is_young then soon = math.min(soon or YOUNG_MS, math.max(1000, age)) end
    if is_young or not age then kept[#kept + 1] = line .. '\n' end
  end
  f.list = table.concat(kept)
  return soon
end

local over, due, fields = {}, {}, {}
for i = 2, #ARGV, 4 do fields[#fields + 1] = ARGV[i] end
local text_of = followers_of(s, fields)
for n, field in ipairs(fields) do
  local i, text = 4 * n - 2, text_of(n)
  local f, again = text and followers_in(text), ARGV[i + 2]
  local before = f and f.list
  local soon, id = f and without(f, ARGV[i + 3]), string.match(field, '^[^\31]*')
  if f and f.list ~= '' then
    if f.list ~= before then keep_followers(s, field, f) end
    hold_results(s, id, ended_by(s, field, f))
    if f.away ~= '' then leave_archive(s, field, f) end
    if soon then again = string.format('%.0f', math.min(tonumber(again), s.now + soon)) end
    if f.generation == tonumber(ARGV[i + 1]) then
      -- Who goes on has reported of it; when it ends, that is reported.
      if f.how == '' and not soon and tonumber(again) > s.now + 1000 then redis.call('ZREM', endings, field)
      else due[#due + 1], due[#due + 2] = again, field end
    end
  else
    if f then release_results(s, id, ended_by(s, field, f)) end
    over[#over + 1] = field
    if f and f.adds == '*' then over[#over + 1] = children_field(id, f.life) end -- its flow is forgotten
  end
end
if #due > 0 then redis.call('ZADD', endings, unpack(due)) end
if #over > 0 then
  redis.call('ZREM', endings, unpack(over))
  redis.call('HDEL', followers, unpack(over))
end
forget_links(s)
return redis.call('HLEN', followers)
