local OVERTAKEN_MOST = 10000
-- trim_ready(s, ended, overtaken): removes ended entries from the shared stream of a topic that never
-- had another group. All entries before the oldest pending one have ended; trimming costs a fraction of deleting them
-- one by one. Later entries that have ended stay until the oldest one ends, or until there are many. ended: the entries
-- that end now, perhaps none. overtaken: how many ended entries had stayed before (settings).
local function trim_ready(s, ended, overtaken)
  local oldest, left = redis.call('XPENDING', s.ready, s.group, '-', '+', 1)[1], 0
  if oldest then
    left = overtaken + #ended - redis.call('XTRIM', s.ready, 'MINID', oldest[1])
  else
    local delivered = redis.call('XINFO', 'GROUPS', s.ready)[1][8] -- the only group's last-delivered-id
    redis.call('XTRIM', s.ready, 'MINID', delivered)
    redis.call('XDEL', s.ready, delivered)
  end
  if left > OVERTAKEN_MOST and #ended > 0 then left = left - redis.call('XDEL', s.ready, unpack(ended)) end
  if left > 0 then redis.call('HSET', s.settings, 'overtaken', left)
  elseif overtaken > 0 then redis.call('HDEL', s.settings, 'overtaken') end
end
