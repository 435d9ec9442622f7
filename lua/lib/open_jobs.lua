-- open_jobs(s): returns how many jobs are ready or claimed, in all groups
local function open_jobs(s)
  local open = 0
  for _, group in ipairs(s.groups) do
    local both = redis.call('HMGET', s.counts, 'ready:' .. group, 'running:' .. group)
    open = open + (both[1] or 0) + (both[2] or 0)
  end
  return open
end
