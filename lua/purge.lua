-- purge: dead -> gone, for one group.
-- keys: ready, jobs, progress, counts, settings, taken, taken_until
-- keys of the group: dead
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] limit: how many of the longest dead to purge if no id is given
-- ARGV[4..] ids; 'ID\31DELIVERY/NONCE' (letter_in): only if it is still the letter that was shown
-- returns how many were purged
-- flags: allow-oom
-- include: clock, dead_leave, delivery, groups, progress, removal, stored_format
local group, purged, mains = ARGV[2], {}, {}
local topic = redis.call('HMGET', settings, 'groups', 'format', 'after_finish', 'linked')
check_format(topic[2])
local ids = {unpack(ARGV, 4)}
if #ids == 0 then ids = redis.call('ZRANGE', dead, 0, ARGV[3] - 1) end

for _, argument in ipairs(ids) do
  local id, shown, nonce = letter_in(argument)
  local p = shown and parse(redis.call('HGET', progress, field_of(group, id)))
  local same = not shown or p and delivery_of(p) == shown and has_nonce(jobs, id, nonce)
  if same and redis.call('ZREM', dead, id) == 1 then
    p = p or parse(redis.call('HGET', progress, field_of(group, id)))
    purged[#purged + 1], mains[#mains + 1] = id, p.main
  end
end
local s = shard(KEYS)
s.now, s.group, s.groups = now_ms(ARGV[1]), group, names(topic[1])
s.on_removed = after_removal(s, topic[3], topic[4])
dead_leave(s, purged, mains, 'purged')
return #purged
