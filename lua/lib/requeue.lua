-- requeue(k, group, id, p, due, now, permitted): makes the job ready for `group` again, in the group's own stream; or
-- puts it into the bucket, if it is not due yet, or the topic is paused or has a rate (k.waits). The caller must have
-- removed the old entry and corrected the counter of the old state. due: when the attempt is or was due, as text; a job
-- that is handed on keeps its due time; '' = see the record, and then it has passed. permitted: the job was ready and
-- not claimed since, so it already had a permit of the rate. k.not_before, if set: the job is held back until then.
local function requeue(k, group, id, p, due, now, permitted)
  local waits = k.waits == 'paused' or k.waits and not permitted
  p.state, p.entry, p.started, p.deadline = 'w', '', '', due
  redis.call('HSET', k.progress, field_of(group, id), format(p))
  if due == '' and waits then due = string.match(redis.call('HGET', k.jobs, id), '^%d+', 13) end
  local at = math.max(tonumber(due) or now, k.not_before or 0)
  if waits or at > now then
    local head = head_ms(k.bucket)
    redis.call('ZADD', k.bucket, at, member(p.sequence, group, id))
    redis.call('HINCRBY', k.counts, 'waiting:' .. group, 1)
    if not head or at < head then ring(k.wake, at) end
  else
    redis.call('XADD', k.own, '*', 'j', member(p.sequence, group, id))
    redis.call('HINCRBY', k.counts, 'ready:' .. group, 1)
  end
end

-- waits(paused, rate): whether every job goes through the bucket, and why, by these two fields of the settings.
-- returns 'paused'; true = it has a rate; or false
local function waits(paused, rate) return paused == '1' and 'paused' or tonumber(rate or 0) > 0 end
