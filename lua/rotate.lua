-- rotate: the current secret -> the previous one, and a new one in its place; or the previous one -> gone.
-- KEYS[1] secret  STRING  `current`, or `current since_ms previous`
-- ARGV[1] now_ms or ''
-- ARGV[2] the new one, in hex; '' = drop the previous
-- returns what is kept now, '' when there is none. Repeated with the same new one, it changes nothing.
-- include: clock
local secret, now, new = KEYS[1], now_ms(ARGV[1]), ARGV[2]
local kept = redis.call('GET', secret) or ''
local current = string.match(kept, '^%x+')
if new == '' then
  if current then redis.call('SET', secret, current) end
  return current or ''
end
if current == new then return kept end
if current then new = new .. string.format(' %.0f ', now) .. current end
redis.call('SET', secret, new)
return new
