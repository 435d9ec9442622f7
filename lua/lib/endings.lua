-- include: end_in_group, followers, link_key, notify_mover

-- What is reported to those that wait for a job (followers.lua), by every script that ends jobs or lets them go on.

-- wake_for_news(s): has the mover tell followers, now.
local function wake_for_news(s)
  if not s.has_news then notify_mover(link_key(s, 'wake'), s.now) end
  s.has_news = true
end

-- tell_followers(s, field, f): has the mover tell the followers, now.
local function tell_followers(s, field, f)
  local endings = link_key(s, 'endings')
  keep_followers(s, field, f)
  redis.call('ZADD', endings, string.format('%.0f', s.now), field)
  wake_for_news(s)
end

-- is_final(f): returns whether the job has ended permanently, as far as this shard knows
local function is_final(f) return f.how ~= '' and f.how ~= 'dead' end

-- next_generation(s, f): returns the generation of what has just happened to the job
local function next_generation(s, f) return math.max(f.generation + 1, s.now) end

-- waited_for(s, id): returns the followers of a job that is in the pool; nil = it has none
local function waited_for(s, id)
  local key = link_key(s, 'followers')
  local text = s.linked and redis.call('HGET', key, id)
  return text and followers_in(text) or nil
end

-- job_fails(s, id, how): a group has given the job up, or it has failed permanently. Every script in which that happens calls
-- it, in the same step. What is in the archive of one group may come back, unless it has failed permanently in another one.
local function job_fails(s, id, how)
  local f = waited_for(s, id)
  if not f or f.how == how or is_final(f) and (f.how ~= 'archived' or how == 'dead') then return end
  f.how, f.generation = how, next_generation(s, f)
  tell_followers(s, id, f)
end

-- is_dead(s, id): returns whether a group has given up the job
local function is_dead(s, id)
  for _, value in ipairs((states_of(s, {id}))) do
    if value and string.byte(value) == 100 then return true end -- d
  end
  return false
end

-- job_goes_on(s, id): a group goes on with a job that it had given up, or no longer exists. The caller has written that.
local function job_goes_on(s, id)
  local f = waited_for(s, id)
  if not f or f.how ~= 'dead' or is_dead(s, id) then return end
  f.how, f.generation = f.away ~= '' and 'archived' or '', next_generation(s, f)
  tell_followers(s, id, f)
end

-- jobs_leave(s, ids): jobs have left the pool: they are done, or what s.ended_as says. Called with all that leave
-- (after_removal).
local function jobs_leave(s, ids)
  local key, endings, now_text = link_key(s, 'followers'), link_key(s, 'endings'), string.format('%.0f', s.now)
  local kept, due, left = {}, {}, {}
  for i, text in ipairs(redis.call('HMGET', key, unpack(ids))) do
    if text then
      local f, n = followers_in(text), #left
      local is_done = not s.ended_as or s.ended_as == 'done' or s.ended_as == 'left' and f.plus ~= ''
      if not is_final(f) then f.how = is_done and 'done' or s.ended_as
      elseif is_done then f.plus = '+' end
      f.generation = next_generation(s, f) -- also if it had failed before: other groups may have had results since
      local field = ids[i] .. '\31' .. f.life
      kept[2 * n + 1], kept[2 * n + 2], due[2 * n + 1], due[2 * n + 2] = field, followers_text(f), now_text, field
      left[n + 1] = ids[i]
    end
  end
  if #left == 0 then return end
  redis.call('HSET', key, unpack(kept))
  redis.call('ZADD', endings, unpack(due))
  redis.call('HDEL', key, unpack(left))
  redis.call('ZREM', endings, unpack(left))
  wake_for_news(s)
end
