-- trim_dead: dead -> gone, for one group: the dead letters that are older than the topic keeps them (settings field
-- `dead_for`, ms), the longest dead first, at most `limit`.
-- keys: ready, jobs, progress, counts, settings, taken, taken_until
-- keys of the group: dead
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] limit
-- returns how many were removed; as many as the limit = there may be more
-- flags: allow-oom
-- include: clock, dead_leave, groups, progress, removal, stored_format
local topic = redis.call('HMGET', settings, 'groups', 'format', 'after_finish', 'dead_for', 'linked')
check_format(topic[2])
if not topic[4] then return 0 end
local s, group, mains = shard(KEYS), ARGV[2], {}
s.now, s.group, s.groups = now_ms(ARGV[1]), group, names(topic[1])
s.on_removed = after_removal(s, topic[3], topic[5])
local until_ms = string.format('%.0f', s.now - tonumber(topic[4]))
local ids = redis.call('ZRANGEBYSCORE', dead, '-inf', until_ms, 'LIMIT', 0, ARGV[3])
if #ids == 0 then return 0 end
for i, id in ipairs(ids) do
  local p = parse(redis.call('HGET', progress, field_of(group, id)))
  mains[i] = p and p.main or ''
end
redis.call('ZREM', dead, unpack(ids))
dead_leave(s, ids, mains, 'purged')
return #ids
