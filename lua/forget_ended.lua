-- forget_ended: forgets what is kept of jobs that are gone: their results, and that their ids are taken. Ids of jobs that
-- are there are left alone.
-- keys: jobs, settings, taken, taken_until
-- ARGV[1] '' = only count
-- ARGV[2..] ids
-- returns {results, taken}: how many of each there were
-- flags: allow-oom
-- include: results, stored_format, taken
local s, found = shard(KEYS), {0, 0}
local topic = redis.call('HMGET', settings, 'format', 'results')
check_format(topic[1])
local groups, command = results_in(topic[2]) or {}, ARGV[1] == '' and 'EXISTS' or 'DEL'
for _, id in ipairs({unpack(ARGV, 2)}) do
  if redis.call('HEXISTS', jobs, id) == 0 then
    for group in pairs(groups) do found[1] = found[1] + redis.call(command, result_key(s, group, id)) end
    found[2] = found[2] + redis.call('HEXISTS', taken, id)
    if ARGV[1] ~= '' then forget_taken(s, id) end
  end
end
return found
