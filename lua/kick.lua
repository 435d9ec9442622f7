-- kick: dead -> ready, for one group; the retry schedule starts again, the number of attempts continues.
-- keys: bucket, jobs, progress, counts, settings, history, wake, key_tickets, key_waiting, key_admitted,
--   key_unstarted, key_counts, key_paused, key_next_start
-- keys of the group: own, dead
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] history cap
-- ARGV[4] limit: how many of the longest dead to kick if no id is given; fewer if the shard has large jobs
-- ARGV[5..] ids; 'ID\31DELIVERY/NONCE' (letter_in): only if it is still the letter that was shown
-- returns how many were kicked; 0 = none was dead
-- include: clock, delivery, endings, go_on, groups, history, largest, progress, requeue, results, sequence,
--   stored_format
local group = ARGV[2]
local topic, kicked, rows = redis.call('HMGET', settings, 'paused', 'rate', 'largest', 'format', 'key_limit',
  'results', 'linked', 'groups'), 0, {}
check_format(topic[4])
local s = shard(KEYS)
s.waits = waits(topic[1], topic[2])
s.now, s.history_cap, s.key_limit, s.groups = now_ms(ARGV[1]), ARGV[3], topic[5], names(topic[8])
s.results, s.linked = results_in(topic[6]), topic[7]
local ids = {unpack(ARGV, 5)}
if #ids == 0 then ids = redis.call('ZRANGE', dead, 0, fitting(topic[3], tonumber(ARGV[4])) - 1) end
-- Nothing is reserved then: it would make the counters of a shard anew that was deleted meanwhile.
if redis.call('EXISTS', dead) == 0 then return 0 end
local sequence = reserve(counts, #ids)

for _, argument in ipairs(ids) do
  local id, shown, nonce = letter_in(argument)
  local p = shown and parse(redis.call('HGET', progress, field_of(group, id)))
  local same = not shown or p and delivery_of(p) == shown and has_nonce(jobs, id, nonce)
  if same and redis.call('ZREM', dead, id) == 1 then
    kicked, sequence = kicked + 1, sequence + 1
    p = p or parse(redis.call('HGET', progress, field_of(group, id)))
    p.step, p.crashes, p.sequence, p.note = 0, 0, later_order(sequence), ''
    redis.call('HINCRBY', counts, 'dead:' .. group, -1)
    local job = {group = group, id = id, record = redis.call('HGET', jobs, id), progress = p}
    forget_result(s, job)
    go_on(s, job) -- kicked by an operator: due now
    job_goes_on(s, id)
    rows[kicked] = rare_row(s, 'kicked', job, {due = p.deadline})
  end
end
remember(s, rows)
return kicked
