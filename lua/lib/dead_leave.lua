-- include: end_in_group, endings, followers

-- is_done_elsewhere(s, id, f): returns whether another group has done the job, and does not have it in its archive
local function is_done_elsewhere(s, id, f)
  local states = states_of(s, {id})
  for i, group in ipairs(s.groups) do
    local has_ended = states[i] and string.byte(states[i]) == 120 -- x
    if has_ended and not string.find(',' .. f.away .. ',', ',' .. group .. ',', 1, true) then return true end
  end
  return false
end

-- dead_leave(s, ids, mains, how): the jobs were dead letters of s.group, and are purged or archived. mains: `main` of the progress
-- of each.
local function dead_leave(s, ids, mains, how)
  if #ids == 0 then return end
  for _, id in ipairs(ids) do
    local f = how == 'archived' and waited_for(s, id)
    if f then
      if is_done_elsewhere(s, id, f) then f.plus = '+' end
      f.away = f.away .. ',' .. s.group
      keep_followers(s, id, f)
    end
    job_fails(s, id, how)
  end
  end_in_group(s, s.group, ids, mains)
  redis.call('HINCRBY', s.counts, how .. ':' .. s.group, #ids)
end
