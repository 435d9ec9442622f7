-- relayed: reads what became of jobs that relay enqueued and whose receipts stay.
-- keys: jobs, outbox, settings
-- ARGV[1] the topic's number of shards, as the caller knows it
-- ARGV[2..] per job: id, receipt
-- returns nil = the caller's settings of the topic are out of date; or {code, ...}: 0 = no receipt: this Redis never had
-- the job, or lost it; 1 = a job with the id is live; 2 = it has ended
-- runs while its slot moves
-- flags: no-writes
-- include: stored_format
local topic, reply = redis.call('HMGET', settings, 'shards', 'format'), {}
check_format(topic[2])
if topic[1] ~= ARGV[1] then return false end
for i = 2, #ARGV, 2 do
  local code = 0
  if redis.call('HEXISTS', outbox, ARGV[i + 1]) == 1 then code = 2 - redis.call('HEXISTS', jobs, ARGV[i]) end
  reply[#reply + 1] = code
end
return reply
