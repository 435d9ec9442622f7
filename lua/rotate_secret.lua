-- rotate_secret: the current secret -> the previous one, and a new one in its place; or the previous one -> gone.
-- KEYS[1] secret  STRING  `current`, or `current since_ms previous`
-- ARGV[1] now_ms or ''
-- ARGV[2] the new one, in hex; '' = drop the previous
-- returns {before, after}: what was kept and what is, '' when there is none. A new one is not taken while there is a
--   previous one, whose claims it would end. Repeated with the same new one, it changes nothing.
-- include: clock
local secret, now, new = KEYS[1], now_ms(ARGV[1]), ARGV[2]
local before = redis.call('GET', secret) or ''
local current, previous = string.match(before, '^(%x*) ?(.*)$')
local after = before
if new == '' then
  after = current
elseif previous == '' and current ~= new then
  after = current == '' and new or new .. string.format(' %.0f ', now) .. current
end
if after ~= before then redis.call('SET', secret, after) end
return {before, after}
