-- Jobs that others wait for (`after`). HASH `followers`, id of the job -> text; its first line is
--   life|generation|how
-- and each further line one that waits for it, in fields separated by \31: attached_ms, topic, shard, index, nonce, id
-- life        the nonce of the job when the first follower came
-- generation  when the job last ended or went on, ms; always rising; 0 = it has not ended yet
-- how         '' = it goes on; dead = a group has given it up, and a kick lets it go on; done; or it has failed for good:
--             cancelled, replaced, expired, purged, archived, left (with its groups), lost
-- index       of the job among those that the follower waits for, from 0
-- nonce, id   of the follower
-- When the job leaves the pool, its field becomes ID\31LIFE: a later job with the same id has nothing to do with it.
-- ZSET `endings`: fields of jobs that have news -> when their followers are told (again), ms. An ending stays until all
-- its followers have ended: what a failover undoes there is told again.
-- The settings field `linked` says that there may be followers or dependents (dependents.lua). Otherwise
-- nothing here costs a command.

-- followers_in(text): returns {life=, generation=, how=, list=}; list: the lines of the followers, each with its end
local function followers_in(text)
  local life, generation, how, list = string.match(text, '^([^|]*)|(%d+)|(%a*)\n(.*)$')
  return {life = life, generation = tonumber(generation), how = how, list = list}
end

-- keep_followers(s, field, f): writes what followers_in reads.
local function keep_followers(s, field, f)
  local key = link_key(s, 'followers')
  redis.call('HSET', key, field, string.format('%s|%.0f|%s\n', f.life, f.generation, f.how) .. f.list)
end

-- tell_followers(s, field, f): has the mover tell the followers, now.
local function tell_followers(s, field, f)
  local endings = link_key(s, 'endings')
  keep_followers(s, field, f)
  redis.call('ZADD', endings, string.format('%.0f', s.now), field)
  if not s.has_news then notify_mover(link_key(s, 'wake'), s.now) end
  s.has_news = true
end

-- is_final(f): returns whether nothing can change how the job ended
local function is_final(f) return f.how ~= '' and f.how ~= 'dead' end

-- next_generation(s, f): returns the generation of what has just happened to the job
local function next_generation(s, f) return math.max(f.generation + 1, s.now) end

-- waited_for(s, id): returns the followers of a job that is in the pool; nil = it has none
local function waited_for(s, id)
  local key = link_key(s, 'followers')
  local text = s.linked and redis.call('HGET', key, id)
  return text and followers_in(text) or nil
end

-- job_fails(s, id, how): a group has given the job up, or it has failed for good. Every script in which that happens calls
-- it, in the same step.
local function job_fails(s, id, how)
  local f = waited_for(s, id)
  if not f or is_final(f) or f.how == how then return end
  f.how, f.generation = how, next_generation(s, f)
  tell_followers(s, id, f)
end

-- job_goes_on(s, id): a group goes on with a job that it had given up, or no longer exists. The caller has written that.
local function job_goes_on(s, id)
  local f = waited_for(s, id)
  if not f or f.how ~= 'dead' then return end
  for _, value in ipairs((states_of(s, {id}))) do
    if value and string.byte(value) == 100 then return end -- d: another group has given it up
  end
  f.how, f.generation = '', next_generation(s, f)
  tell_followers(s, id, f)
end

-- jobs_leave(s, ids): jobs have left the pool: they are done, or what s.ended_as says. Called with all that leave
-- (after_removal).
local function jobs_leave(s, ids)
  local key, endings = link_key(s, 'followers'), link_key(s, 'endings')
  for i, text in ipairs(redis.call('HMGET', key, unpack(ids))) do
    if text then
      local f = followers_in(text)
      if not is_final(f) then f.how, f.generation = s.ended_as or 'done', next_generation(s, f) end
      tell_followers(s, ids[i] .. '\31' .. f.life, f)
      redis.call('HDEL', key, ids[i])
      redis.call('ZREM', endings, ids[i])
    end
  end
end
