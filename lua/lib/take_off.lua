-- take_off(k, settings, group, ended, overtaken): entries that have ended leave the shared stream of a topic that never
-- had another group. Below the oldest entry that is pending everything has ended: taking that off at once costs a
-- fraction of deleting it entry by entry. What overtook that one stays until it ends, too, or until there is much of it.
-- ended: the entries, perhaps none. overtaken: how many stayed before (settings). k = {ready=}
local OVERTAKEN_MOST = 10000
local function take_off(k, settings, group, ended, overtaken)
  local oldest, left = redis.call('XPENDING', k.ready, group, '-', '+', 1)[1], 0
  if oldest then
    left = overtaken + #ended - redis.call('XTRIM', k.ready, 'MINID', oldest[1])
  else
    local delivered = redis.call('XINFO', 'GROUPS', k.ready)[1][8] -- the only group's last-delivered-id
    redis.call('XTRIM', k.ready, 'MINID', delivered)
    redis.call('XDEL', k.ready, delivered)
  end
  if left > OVERTAKEN_MOST and #ended > 0 then left = left - redis.call('XDEL', k.ready, unpack(ended)) end
  if left > 0 then redis.call('HSET', settings, 'overtaken', left)
  elseif overtaken > 0 then redis.call('HDEL', settings, 'overtaken') end
end
