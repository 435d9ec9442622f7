-- enqueue_after: nothing -> waiting, a job that is due when others have ended. They know of it already (attach); if they
-- have all ended, it is due after its delay.
-- keys: jobs, bucket, ready, progress, counts, settings, history, wake, taken, taken_until, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- ARGV[1] now_ms or ''
-- ARGV[2] the topic's number of shards, as lib/is_current.lua takes it
-- ARGV[3] history cap
-- ARGV[4] if a job has the id: 'keep' it; or, if it waits, 'replace' it
-- ARGV[5] id
-- ARGV[6] rest of the record
-- ARGV[7] what it waits for (waits.lua): total|done|failed|delay_ms|on_failure|0
-- ARGV[8..] per 500 of those that it waits for: they themselves, how they have ended
-- returns {status, now_ms, looked, i, record_i, ...} as replace does, of one job
-- include: clock, dependents, drop_job, groups, is_current, key_limit, key_tickets, largest, link_key, removal,
--   results, sequence, stored_format, waits
local now, id, rest = now_ms(ARGV[1]), ARGV[5], ARGV[6]
local topic = redis.call('HMGET', settings, 'shards', 'groups', 'largest', 'leaving', 'format', 'after_finish', 'key_limit',
  'sharded_by_key', 'linked', 'results')
check_format(topic[5])
if not is_current(topic[1], topic[8], ARGV[2]) then return {0, now, 0} end
local s = shard(KEYS)
s.now, s.history_cap, s.groups, s.leaving, s.key_limit = now, ARGV[3], names(topic[2]), topic[4], topic[7]
s.ended_as, s.on_removed = 'replaced', after_removal(s, topic[6], topic[9])
s.results = results_in(topic[10])
local before = redis.call('HINCRBY', counts, 'enqueued', 1) - 1 -- always written, as in enqueue
local held = redis.call('HGET', jobs, id)
local is_repeated = held and string.sub(held, -#rest) == rest -- with the same nonce
if is_repeated or held and (ARGV[4] == 'keep' or drop_job(s, {id = id, record = held}, nil) ~= 1) then
  redis.call('HINCRBY', counts, 'enqueued', -1)
  return {1, now, 1, 1, held}
end
if not topic[9] then redis.call('HSET', settings, 'linked', 1) end
local order = first_order(before + 1)
local record = order .. NEVER .. string.format('\n%.0f\n', now) .. rest
local member = id .. '\31' .. nonce_of(record)
local dependencies, looks = link_key(s, 'dependencies'), link_key(s, 'dependents')
redis.call('ZADD', looks, string.format('%.0f', now + LOOK_AFTER_MS), member)
for i = 8, #ARGV, 2 do
  local field = member .. '\31' .. (i - 8) / 2
  redis.call('HSET', dependencies, field, ARGV[i], field .. '\31s', ARGV[i + 1])
end
redis.call('HSET', dependencies, member, ARGV[7])
redis.call('HSET', jobs, id, record)
forget_results(s, id)
redis.call('HINCRBY', counts, 'waiting_for_jobs', 1)
note_largest(settings, topic[3], #record)
local key = topic[7] and topic[7] ~= '0' and key_in(rest, 1)
if key then add(s, s.groups, key, {id = id, sequence = order, due = tonumber(NEVER)})
else redis.call('ZADD', bucket, NEVER, order .. id) end
act_on(s, wait_of(s, member), {id = id, record = record})
return {1, now, 1}
