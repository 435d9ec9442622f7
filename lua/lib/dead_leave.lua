-- include: end_in_group, endings

-- dead_leave(s, ids, mains, how): the jobs were dead letters of s.group, and are purged or archived. mains: `main` of the progress
-- of each.
local function dead_leave(s, ids, mains, how)
  if #ids == 0 then return end
  for _, id in ipairs(ids) do job_fails(s, id, how) end
  end_in_group(s, s.group, ids, mains)
  redis.call('HINCRBY', s.counts, how .. ':' .. s.group, #ids)
end
