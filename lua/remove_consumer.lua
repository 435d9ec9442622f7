-- remove_consumer: hands back a consumer's pending entries, which would be dropped with it, and deletes the consumer.
-- keys: ready, jobs, bucket, progress, counts, settings, history, taken, taken_until, wake, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- keys of the group: own
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] consumer
-- ARGV[4] limit per stream; fewer if the shard has large jobs
-- ARGV[5] history cap
-- returns 1 = the consumer is gone, perhaps with its group; 0 = more entries may be pending: call again
-- flags: allow-oom
-- include: clock, groups, hand_over, largest, removal, requeue, results, stored_format
local group, consumer = ARGV[2], ARGV[3]
local topic = redis.call('HMGET', settings, 'groups', 'paused', 'rate', 'largest', 'format', 'key_limit', 'after_finish', 'results', 'linked')
check_format(topic[5])
local limit = fitting(topic[4], tonumber(ARGV[4]))
local s = shard(KEYS)
s.groups, s.waits = names(topic[1]), waits(topic[2], topic[3])
s.now, s.group, s.history_cap, s.key_limit = now_ms(ARGV[1]), group, ARGV[5], topic[6]
s.on_removed = after_removal(s, topic[7], topic[9])
s.results = results_in(topic[8])
if not has(s.groups, group) then return 1 end

for _, stream in ipairs({ready, own}) do
  local pending = redis.call('XPENDING', stream, group, '-', '+', limit, consumer)
  for _, row in ipairs(pending) do
    local item = redis.call('XRANGE', stream, row[1], row[1])[1]
    if item then
      hand_over(s, {}, {stream = stream, id = row[1], member = item[2][2]})
    else
      redis.call('XACK', stream, group, row[1])
    end
  end
  if #pending == limit then return 0 end
  redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
end
return 1
