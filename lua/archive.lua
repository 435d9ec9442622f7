-- archive: dead -> archived, for one group: letters that a database has stored leave Redis, if they are still the same:
-- a letter that was kicked meanwhile stays, even if it was buried again. Idempotent.
-- keys: ready, jobs, progress, counts, settings, archive, taken, taken_until
-- keys of the group: dead
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3..] per letter: id, receipt, buried_ms, sequence, attempt
-- returns {code, ...}: 1 = archived, now or by an earlier call that left its receipt; 0 = not dead, or buried again
-- flags: allow-oom
-- include: clock, dead_leave, groups, progress, removal, stored_format
local group, reply, archived, mains = ARGV[2], {}, {}, {}
local topic = redis.call('HMGET', settings, 'groups', 'format', 'after_finish', 'linked')
check_format(topic[2])

for i = 3, #ARGV, 5 do
  local id, receipt, code = ARGV[i], ARGV[i + 1], 0
  if redis.call('HEXISTS', archive, receipt) == 1 then
    code = 1
  else
    local buried = redis.call('ZSCORE', dead, id)
    local p = buried and parse(redis.call('HGET', progress, field_of(group, id)))
    if p and tonumber(buried) == tonumber(ARGV[i + 2]) and p.sequence == ARGV[i + 3] and p.attempt == ARGV[i + 4] then
      redis.call('ZREM', dead, id)
      redis.call('HSET', archive, receipt, 1)
      archived[#archived + 1], mains[#mains + 1], code = id, p.main, 1
    end
  end
  reply[#reply + 1] = code
end
local s = shard(KEYS)
s.now, s.group, s.groups = now_ms(ARGV[1]), group, names(topic[1])
s.ended_as, s.on_removed = 'archived', after_removal(s, topic[3], topic[4])
dead_leave(s, archived, mains, 'archived')
return reply
