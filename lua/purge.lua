-- purge: dead -> gone, for one group.
-- KEYS[1] dead:GROUP  ZSET
-- KEYS[2] ready       STREAM
-- KEYS[3] jobs        HASH
-- KEYS[4] progress    HASH
-- KEYS[5] counts      HASH
-- KEYS[6] settings    HASH
-- KEYS[7] taken       HASH
-- KEYS[8] taken_until  ZSET
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] limit: how many of the longest dead to purge if no id is given
-- ARGV[4..] ids; 'ID\31DELIVERY/NONCE' (letter_in): only if it is still the letter that was shown
-- returns how many were purged
-- include: clock, progress, settle, delivery, stored_format, taken
local dead, ready, jobs, progress, counts, settings, taken, taken_until = unpack(KEYS)
local group, gone, mains = ARGV[2], {}, {}
local k = {jobs = jobs, progress = progress, counts = counts, ready = ready}
local topic = redis.call('HMGET', settings, 'groups', 'format', 'after_finish')
check_format(topic[2])
local groups = names(topic[1])
local ids = {unpack(ARGV, 4)}
if #ids == 0 then ids = redis.call('ZRANGE', dead, 0, ARGV[3] - 1) end

for _, argument in ipairs(ids) do
  local id, shown, nonce = letter_in(argument)
  local p = shown and parse(redis.call('HGET', progress, field_of(group, id)))
  local same = not shown or p and delivery_of(p) == shown and has_nonce(jobs, id, nonce)
  if same and redis.call('ZREM', dead, id) == 1 then
    p = p or parse(redis.call('HGET', progress, field_of(group, id)))
    gone[#gone + 1], mains[#mains + 1] = id, p.main
  end
end
k.gone = leaving_pool(topic[3], taken, taken_until, now_ms(ARGV[1]))
settle(k, groups, group, gone, mains)
if #gone > 0 then redis.call('HINCRBY', counts, 'purged:' .. group, #gone) end
return #gone
