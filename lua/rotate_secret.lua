-- rotate_secret: the current secret -> the previous one, and a new one in its place; or the previous one -> gone.
-- keys: secret
-- ARGV[1] now_ms or ''
-- ARGV[2] the new one, in hex; '' = drop the previous
-- returns {before, after}: the stored value, '' if there is none. A new secret is refused while there is a previous
-- one,
--   because its claims would become invalid. Idempotent for the same new secret.
-- runs while its slot moves
-- include: clock
local now, new = now_ms(ARGV[1]), ARGV[2]
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
