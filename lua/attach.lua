-- attach: notes who waits for a job, so that it is reported when the job ends. Idempotent.
-- keys: jobs, progress, settings
-- ARGV[1] now_ms or ''
-- ARGV[2] the topic's number of shards, as the caller knows it; '' = the caller knows that the jobs are or were here
-- ARGV[3..] per follower: id of the job; its life (followers.lua), '' = that of the job that is here, '=' = that of a job that
-- has ended, as its kept results tell (results.lua): nothing is noted; the follower's topic, shard, index, nonce and id, as
-- in a line of followers.lua; a \31 before them: it is there before the job can start, as both are in the same flow
-- returns nil = the caller's settings of the topic are out of date, nothing was written; {life, generation, how, ...} for each
-- follower, or only for the first ones, if much is stored of the jobs: call it again for the others. how: as in
-- followers.lua; 'unknown' = there is no such job, nor anything of it; 'full' = too many wait for it
-- include: clock, ended_in, endings, followers, groups, link_key, results, stored_format, waits
local MOST_BYTES = 262144 -- about 2,500 followers; each call reads and writes all of them
local topic = redis.call('HMGET', settings, 'shards', 'format', 'groups', 'results')
check_format(topic[2])
if ARGV[2] ~= '' and topic[1] ~= ARGV[2] then return false end
local s = shard(KEYS)
s.now, s.groups, s.results = now_ms(ARGV[1]), names(topic[3]), results_in(topic[4])
local followers, endings, reply = link_key(s, 'followers'), link_key(s, 'endings'), {}
local latest = {} -- what is known of jobs, by field, with what this call adds
local bytes = 0 -- that were read
local now_text = string.format('%.0f', s.now)

-- How a job has ended that left the pool before anyone waited for it, and when. nil = not all groups have a result of it,
-- and none says that it failed.
local function kept_end(id)
  local how, last = s.groups[1] and 'done', 0
  for _, group in ipairs(s.groups) do
    local key = result_key(s, group, id)
    local at, outcome = string.match(redis.call('GETRANGE', key, 0, 40), '^(%d+)|(%l+)|') -- the result may be large
    if at then last = math.max(last, tonumber(at)) else how = nil end
    if outcome == 'dead' then return 'purged', last end -- or archived: it is no longer here
    if outcome == 'cancelled' or outcome == 'expired' then return outcome, last end
  end
  return how, last
end

-- Groups may have failed the job before anyone waited for it.
local function note_failures(id, f)
  local notes, away, failed = ended_in(s, id), '', nil
  for _, group in ipairs(s.groups) do
    local note = notes[group]
    if note == '' then f.plus = '+'
    elseif note == 'archived' then away = away .. ',' .. group
    else failed = failed or note end
  end
  f.away, f.how = away, failed or away ~= '' and 'archived' or is_dead(s, id) and 'dead' or ''
  if f.how ~= '' then f.generation = s.now end
end

-- What is known of the job: its field, and followers_in. nil = nothing.
local function found(id, life)
  if latest[id] and (life == '' or latest[id].life == life) then return id, latest[id] end
  local text, field = redis.call('HGET', followers, id), id
  local record = not text and redis.call('HGET', jobs, id) -- with the body: it is only read if it tells more
  bytes = bytes + #(record or text or '')
  if not record and not (text and redis.call('HEXISTS', jobs, id) == 1) then -- if it had followers, it was lost
    s.ended_as = 'lost'
    jobs_leave(s, {id})
    text = false
  end
  local f = text and followers_in(text)
    or record and {life = life_of(record), generation = 0, how = '', plus = '', adds = '', list = ''}
  if f and not text then note_failures(id, f) end
  if f and (life == '' or f.life == life) then return field, f end
  field = id .. '\31' .. life
  if latest[field] then return field, latest[field] end
  text = redis.call('HGET', followers, field)
  bytes = bytes + #(text or '')
  if text then return field, followers_in(text) end
  local how, at = kept_end(id)
  if how and life == string.format('=%.0f', at) then
    return field, {life = life, generation = at, how = how, plus = '', adds = '', list = ''}
  end
end

-- What is said of a job. If it has children, only its ending tells of it, which tells of them, too.
local function said(f)
  if f.adds ~= '' then return {f.life, 0, ''} end
  return {f.life, f.generation, f.how}
end

local kept = {} -- fields and texts, written together
for i = 3, #ARGV, 3 do
  if bytes > MOST_BYTES then break end
  local field, f = found(ARGV[i], ARGV[i + 1])
  local early, one = string.match(ARGV[i + 2], '^(\31?)(.*)$')
  local at = early ~= '' and '0' or now_text
  if not f then
    local how, ended_at
    if ARGV[i + 1] == '=' then how, ended_at = kept_end(ARGV[i]) end
    reply[#reply + 1] = how and {string.format('=%.0f', ended_at), ended_at, how} or {ARGV[i + 1], 0, 'unknown'}
  elseif string.find(f.list, '\31' .. one .. '\n', 1, true) then
    hold_results(s, ARGV[i], ended_by(s, field, f))
    reply[#reply + 1] = said(f)
  elseif #f.list > MOST_BYTES then
    reply[#reply + 1] = {f.life, f.generation, 'full'}
  else
    f.list = f.list .. at .. '\31' .. one .. '\n'
    latest[field] = f
    kept[field] = true
    reply[#reply + 1] = said(f)
    hold_results(s, ARGV[i], ended_by(s, field, f))
    -- Of many followers, some may have ended: they are notified, and then those that have are forgotten.
    local soon = f.how ~= '' and 30000 or #f.list > MOST_BYTES / 2 and 60000
    if soon then redis.call('ZADD', endings, 'NX', string.format('%.0f', s.now + soon), field) end
    if f.adds ~= '' then
      redis.call('ZADD', endings, string.format('%.0f', s.now), field)
      wake_for_news(s)
    end
  end
end
local args = {}
for field in pairs(kept) do args[#args + 1], args[#args + 2] = field, followers_text(latest[field]) end
if #args > 0 then
  redis.call('HSET', settings, 'linked', 1)
  redis.call('HSET', followers, unpack(args))
end
return reply
