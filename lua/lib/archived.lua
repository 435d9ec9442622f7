-- include: endings, followers, link_key

-- What those hear that wait for a job which is in the archive of some of its groups (followers.lua).

-- still_away(s, f, back): returns f.away without the group `back`, and without those that have left the topic, which get nothing
-- back
local function still_away(s, f, back)
  local away = {}
  for name in string.gmatch(f.away, '[^,]+') do
    for _, served in ipairs(s.groups) do
      if name == served and name ~= back then away[#away + 1] = name end
    end
  end
  return table.concat(away, ',')
end

-- job_returns(s, job, life): an archived job is back for job.group, perhaps after it had left the pool. The caller has written
-- that.
local function job_returns(s, job, life)
  local id = job.id
  local key, endings, left = link_key(s, 'followers'), link_key(s, 'endings'), id .. '\31' .. life
  local f = waited_for(s, id)
  local text = s.linked and not f and redis.call('HGET', key, left)
  if text then f = followers_in(text) end
  if not f or f.how ~= 'archived' and f.how ~= 'dead' then return end
  f.away = still_away(s, f, job.group)
  f.how, f.generation = is_dead(s, id) and 'dead' or f.away ~= '' and 'archived' or '', next_generation(s, f)
  tell_followers(s, id, f)
  redis.call('HDEL', key, left)
  redis.call('ZREM', endings, left)
end

-- leave_archive(s, field, f): the groups in whose archive a job was may have left the topic since: then it is as if none had
-- archived it.
local function leave_archive(s, field, f)
  local away = still_away(s, f)
  if f.how ~= 'archived' or away ~= '' then return end
  local has_left = string.find(field, '\31', 1, true)
  if has_left then f.how = f.plus ~= '' and 'done' or 'left' else f.how = is_dead(s, field) and 'dead' or '' end
  f.away, f.generation = '', next_generation(s, f)
  tell_followers(s, field, f)
end
