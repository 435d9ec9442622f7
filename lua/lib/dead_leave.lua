-- include: end_in_group, ended_in, endings, followers

-- dead_leave(s, ids, mains, how): the jobs were dead letters of s.group, and are purged or archived. mains: `main` of the progress
-- of each.
local function dead_leave(s, ids, mains, how)
  if #ids == 0 then return end
  for _, id in ipairs(ids) do
    local f = how == 'archived' and waited_for(s, id)
    if f then
      if is_done_in_one(s, id) then f.plus = '+' end
      f.away = f.away .. ',' .. s.group
      keep_followers(s, id, f)
    end
    job_fails(s, id, how)
  end
  fail_in_group(s, how, ids, mains)
  redis.call('HINCRBY', s.counts, how .. ':' .. s.group, #ids)
end
