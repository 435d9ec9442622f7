-- include: ranked, stream_groups, turns

-- missing_jobs(s, group, pending): counts jobs that are ready for `group` by the counters, but in no stream: their
-- records or entries are gone, though nobody ended them. (Cancelling a job also corrects the counter.) A ready job is
-- either unread, or read and not claimed yet; then it is pending, like the running ones. So once nothing is unread, the
-- counters show what is missing. pending: how many entries of the group are pending in both streams.
-- returns their number
local function missing_jobs(s, group, pending)
  local both = redis.call('HMGET', s.counts, 'ready:' .. group, 'running:' .. group)
  local ready, running = tonumber(both[1] or 0), tonumber(both[2] or 0)
  -- A claim whose stream was deleted keeps running without being pending; until it ends, the sum says nothing.
  if ready <= pending - running or pending < running then return 0 end
  if #next_unread(s.own, group, 1) > 0 or #next_unread(s.ready, group, 1) > 0 then return 0 end
  if has_turns(s, group) then
    promote(s, group, s.own, 0) -- what would have woken a consumer is gone
    return 0
  end
  return ready - (pending - running)
end
