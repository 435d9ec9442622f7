-- link_children: the children of a job (followers.lua) have been put in: from now on they are among its followers, and start
-- when its ending is delivered. Idempotent.
-- keys: settings
-- ARGV[1] now_ms or ''
-- ARGV[2] id of the job, which has left the pool
-- ARGV[3] its life
-- ARGV[4..] per child: attached_ms, as in followers.lua; the rest of its line, from the topic on
-- returns 1 = done; 0 = they were linked before, or nothing is known of the job
-- flags: allow-oom
-- include: children, clock, endings, followers, link_key, stored_format
check_format(redis.call('HGET', settings, 'format'))
local s = shard(KEYS)
s.now = now_ms(ARGV[1])
local followers, field = link_key(s, 'followers'), ARGV[2] .. '\31' .. ARGV[3]
local text = redis.call('HGET', followers, field)
local f = text and followers_in(text)
if not f or f.adds ~= '*' then return 0 end
local children, lines = {}, {}
for i = 4, #ARGV, 2 do children[ARGV[i + 1]] = ARGV[i] end
for line in string.gmatch(f.list, '[^\n]+') do
  -- A child that waits for long has asked for the job, and is among them already.
  if not children[string.match(line, '^[^\31]*\31(.*)$')] then lines[#lines + 1] = line .. '\n' end
end
for i = 4, #ARGV, 2 do lines[#lines + 1] = ARGV[i] .. '\31' .. ARGV[i + 1] .. '\n' end
f.list, f.adds = table.concat(lines), '&'
tell_followers(s, field, f)
redis.call('HDEL', followers, children_field(ARGV[2], ARGV[3]))
return 1
