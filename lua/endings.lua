-- endings: reads which jobs have ended whose followers are to be reported now. It changes nothing.
-- keys: settings
-- ARGV[1] now_ms or ''
-- ARGV[2] limit: how many jobs
-- returns {now_ms, next_ms, look_ms, field, text, ...}: next_ms: when the next ending is to be reported that is not among these;
-- look_ms: when look_after is to be called; -1 = never. The rest: fields of `followers` and their text
-- runs while its slot moves
-- flags: no-writes
-- include: clock, followers_of, link_key, stored_format
local MOST_BYTES = 262144
check_format(redis.call('HGET', settings, 'format'))
local s = shard(KEYS)
local now, bytes, looked = now_ms(ARGV[1]), 0, 0
local endings, looks = link_key(s, 'endings'), link_key(s, 'dependents')
local look = tonumber(redis.call('ZRANGE', looks, 0, 0, 'WITHSCORES')[2] or -1)
local reply = {now, -1, look}
local fields = redis.call('ZRANGEBYSCORE', endings, '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[2])
local text_of = followers_of(s, fields)
for i, field in ipairs(fields) do
  local text = text_of(i)
  reply[#reply + 1], reply[#reply + 2] = field, text or ''
  bytes, looked = bytes + #(text or ''), looked + 1
  if bytes > MOST_BYTES then break end
end
reply[2] = tonumber(redis.call('ZRANGE', endings, looked, looked, 'WITHSCORES')[2] or -1)
return reply
