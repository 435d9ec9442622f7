-- missing_of(k, group, pending): how many jobs are ready for `group` by the counters, and in no stream: their records or
-- entries are gone, and nobody ended them. A cancelled job's entry is no such: cancelling takes it off the counter.
-- What is ready is either unread, or read and not claimed yet, and then pending beside the running ones. So as soon as
-- nothing is unread, the counters tell. k = {ready=, own=, counts=}
local function unread(stream, group)
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local at = {}
    for i = 1, #info, 2 do at[info[i]] = info[i + 1] end
    if at.name == group then
      return #redis.call('XRANGE', stream, '(' .. at['last-delivered-id'], '+', 'COUNT', 1) > 0
    end
  end
  return true
end
local function missing_of(k, group, pending)
  local both = redis.call('HMGET', k.counts, 'ready:' .. group, 'running:' .. group)
  local ready, running = tonumber(both[1] or 0), tonumber(both[2] or 0)
  -- A claim whose stream was deleted runs on without being pending: until it ends, the sum says nothing.
  if ready <= pending - running or pending < running then return 0 end
  if unread(k.own, group) or unread(k.ready, group) then return 0 end
  return ready - (pending - running)
end
