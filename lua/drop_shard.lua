-- drop_shard: removes a shard of a topic that is being deleted, with all its keys. Without settings nothing can be
-- enqueued to it. Three things stay, for an hour or for as long as there may be results of its jobs: its version, so that a
-- process that was stopped while changing the topic does not create it again; for dumps, how much history it had: settings
-- field `history_ended`, text 'since:written'; and which groups kept results, so that a job of the next topic of that name
-- does not get the result of an earlier job with its id.
-- keys: settings, jobs, counts, archive, outbox, schedules, bucket, ready, progress, history, failures, wake, ticks,
--   taken, taken_until, key_tickets, key_waiting, key_admitted, key_unstarted, key_counts, key_paused, key_next_start,
--   followers, endings, dependencies, dependents, blocked, flows, flow_times
-- keys of each group: own, dead
-- ARGV[1] version: a shard with a newer one stays
-- ARGV[2] '1' = even if it holds jobs or schedules; or receipts, without which a database takes jobs that have ended for
-- lost; or endings that have yet to be reported
-- returns 1 = it is gone; 0 = it holds jobs, schedules, receipts or endings
-- flags: allow-oom
-- include: ranked, results, stored_format
local known = redis.call('HMGET', settings, 'version', 'format')
check_format(known[2])
if tonumber(known[1] or 0) > tonumber(ARGV[1]) then return 1 end
if ARGV[2] ~= '1' then
  for _, key in ipairs({jobs, archive, outbox, schedules, followers}) do if redis.call('HLEN', key) > 0 then return 0 end end
end
local life = redis.call('HMGET', settings, 'history_since', 'history_ended', 'results', 'linked')
local ended = life[1] and life[1] .. ':' .. (redis.call('HGET', counts, 'history') or 0) or life[2]
local kept_ms = math.max(3600000, redis.call('PTTL', settings)) -- it may have been dropped before
redis.call('UNLINK', settings, jobs, counts)
for i = 4, #KEYS do redis.call('UNLINK', KEYS[i]) end
for i = FIXED + 1, #KEYS, 2 do forget_turns(shard(KEYS), string.match(KEYS[i], '[^:]*$')) end
redis.call('HSET', settings, 'version', ARGV[1])
if ended then redis.call('HSET', settings, 'history_ended', ended) end
if life[3] then
  redis.call('HSET', settings, 'results', life[3])
  kept_ms = math.max(kept_ms, longest_kept(life[3]) + (life[4] and HELD_MS or 0))
end
redis.call('PEXPIRE', settings, string.format('%.0f', kept_ms))
return 1
