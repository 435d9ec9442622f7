-- abort: a job that waits -> cancelled; of one that runs -> told to stop: it ends as cancelled, however its attempt ends,
-- and no group starts a new attempt. With a group, this concerns that group alone.
-- keys: jobs, bucket, ready, progress, counts, settings, history, taken, taken_until, wake, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- keys of each group: dead
-- ARGV[1] now_ms or ''
-- ARGV[2] id
-- ARGV[3] history cap
-- ARGV[4] the topic's number of shards, as the caller knows it
-- ARGV[5] groups, 'a,b', as the caller knows them
-- ARGV[6] group; '' = all of them
-- ARGV[7] 'cover' = write even if nothing is to be changed, so that WAIT covers earlier writes; ''; or none
-- ARGV[8] nonce of the job that is meant; or none
-- returns {status, consumer, main, entry, ...}: status 2 = an attempt runs and is flagged: its consumer, and the entries of its
-- claim, for each; 1 = cancelled; 0 = no such job, or no group waits for it or runs it; -2 = the caller's settings of the
-- topic are out of date, nothing was changed; -3 = nothing was changed: no group has begun with it, and all
-- wait for it together
-- flags: allow-oom
-- include: clock, drop_job, end_in_group, endings, group_states, groups, history, progress, removal, results,
--   stored_format, waits, withdraw
local s, id, group = shard(KEYS), ARGV[2], ARGV[6]
s.history_cap = ARGV[3]
local topic = redis.call('HMGET', settings, 'shards', 'groups', 'leaving', 'format', 'after_finish', 'key_limit',
  'results', 'linked')
check_format(topic[4])
if topic[1] ~= ARGV[4] or topic[2] ~= ARGV[5] then return {-2} end
s.groups, s.leaving, s.key_limit = names(topic[2]), topic[3], topic[6]
if ARGV[7] == 'cover' then redis.call('HINCRBY', counts, 'enqueued', 0) end
s.now = now_ms(ARGV[1])
s.on_removed = after_removal(s, topic[5], topic[8])
s.results = results_in(topic[7])
local job, dead = {id = id, record = redis.call('HGET', jobs, id)}, {}
if not job.record or ARGV[8] and nonce_of(job.record) ~= ARGV[8] then return {0} end
for i, one in ipairs(s.groups) do dead[one] = KEYS[FIXED + i] end
local concerned, states, is_running = group_states(s, job)
local is_for_all = group == '' or #concerned == 1 and concerned[1] == group
if is_for_all and not is_running then return {drop_job(s, job, dead)} end
if not is_for_all and not has(concerned, group) then return {0} end
if not is_for_all and next(states) == nil then return {-3} end

local main, reply, rows = '', {0}, {}
for _, p in pairs(states) do if p.main ~= '' then main = p.main end end
for _, one in ipairs(is_for_all and concerned or {group}) do
  local p = states[one]
  s.group = one
  if p and p.state == 'r' then
    p.aborted = true
    redis.call('HSET', progress, field_of(one, id), format(p))
    reply[1], reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = 2, p.note, p.main, p.entry
  elseif p and p.state == 'd' and is_for_all then
    redis.call('ZREM', dead[one], id) -- or a kick would start it again
    redis.call('HINCRBY', counts, 'purged:' .. one, 1)
    job_fails(s, id, 'cancelled')
    fail_in_group(s, 'purged', {id}, {main})
  elseif #withdraw(s, job, {one}, states) > 0 then
    reply[1] = math.max(reply[1], 1)
    rows[#rows + 1] = cancel_in(s, job, one, p)
    fail_in_group(s, 'cancelled', {id}, {main})
  end
end
remember(s, rows)
return reply
