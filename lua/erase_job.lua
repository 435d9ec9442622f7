-- erase_job: delayed, ready or dead -> gone, for every group, and nothing is left of the job: no row of the history, no
-- result, no id that stays taken. It counts as cancelled for the groups that waited for it, and as purged for the others.
-- keys: jobs, bucket, ready, progress, counts, settings, history, taken, taken_until, wake, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- keys of each group: own, dead
-- ARGV[1] now_ms or ''
-- ARGV[2] id
-- ARGV[3] the topic's number of shards, as the caller knows it
-- ARGV[4] groups, 'a,b', as the caller knows them
-- ARGV[5] the job as it was shown (deliveries_in): another delivery is left alone
-- ARGV[6..] its entries, 'GROUP|ENTRY' in ready:GROUP, '|ENTRY' in ready; of a job that is gone they are removed as well
-- returns 1 = erased; 0 = only a group that is leaving still has it; -1 = an attempt is running; -2 = the caller's settings
-- of the topic are out of date, nothing was changed; -3 = it is no longer as it was shown; -4 = there is no such job
-- flags: allow-oom
-- include: clock, dead_leave, deliveries, drop_job, group_states, groups, removal, results, stored_format, taken
local s = shard(KEYS)
s.history_cap = '0'
local topic = redis.call('HMGET', settings, 'shards', 'groups', 'leaving', 'format', 'after_finish', 'key_limit',
  'results', 'linked')
check_format(topic[4])
if topic[1] ~= ARGV[3] or topic[2] ~= ARGV[4] then return -2 end
s.groups, s.leaving, s.key_limit = names(topic[2]), topic[3], topic[6]
s.now = now_ms(ARGV[1])
s.on_removed = after_removal(s, nil, topic[8]) -- its id is not taken any more
local job, dead = {id = ARGV[2], record = redis.call('HGET', jobs, ARGV[2])}, {}
local streams = {[''] = ready}
for i, group in ipairs(s.groups) do streams[group], dead[group] = KEYS[FIXED + 2 * i - 1], KEYS[FIXED + 2 * i] end

local function remove_entries()
  for _, place in ipairs({unpack(ARGV, 6)}) do
    local group, entry = string.match(place, '^([^|]*)|(.*)$')
    local stream = streams[group]
    local found = stream and redis.call('XRANGE', stream, entry, entry)[1]
    local rest = found and string.sub(found[2][2], 13)
    if rest and (string.match(rest, '^\31[^\31]*\31(.*)$') or rest) == job.id then redis.call('XDEL', stream, entry) end
  end
end
if not job.record then
  remove_entries()
  return -4
end
if is_changed(s, job, ARGV[5]) then return -3 end

-- A job that nobody waits for is dead in the groups that have not ended it.
local code = drop_job(s, job, dead)
if code == 0 then
  local concerned, states = group_states(s, job)
  for _, group in ipairs(concerned) do
    if states[group] and states[group].state == 'd' then
      redis.call('ZREM', dead[group], job.id)
      s.group = group
      dead_leave(s, {job.id}, {states[group].main}, 'purged')
      code = 1
    end
  end
end
if code ~= 1 then return code end
remove_entries()
forget_taken(s, job.id)
s.results = results_in(topic[7])
forget_results(s, job.id)
return 1
