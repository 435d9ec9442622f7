-- include: notify_mover, progress

-- requeue(s, job, due, permitted): makes the job ready for job.group again, in the group's own stream; or puts it into the
-- bucket, if it is not due yet, or the topic is paused or has a rate (s.waits). The caller must have removed the old entry and
-- corrected the counter of the old state. due: when the attempt is or was due, as text; a job that is handed on keeps its due
-- time; '' = see the record, and then it has passed. permitted: the job was ready and not claimed since, so it already had a
-- permit of the rate. job.not_before, if set: the job is held back until then.
local function requeue(s, job, due, permitted)
  local p, group, id = job.progress, job.group, job.id
  local waits = s.waits == 'paused' or s.waits and not permitted
  p.state, p.entry, p.started, p.deadline = 'w', '', '', due
  redis.call('HSET', s.progress, field_of(group, id), format(p))
  if due == '' and waits then due = string.match(redis.call('HGET', s.jobs, id), '^%d+', 13) end
  local at = math.max(tonumber(due) or s.now, job.not_before or 0)
  if waits or at > s.now then
    local head = head_ms(s.bucket)
    redis.call('ZADD', s.bucket, at, member(p.sequence, group, id))
    redis.call('HINCRBY', s.counts, 'waiting:' .. group, 1)
    if not head or at < head then notify_mover(s.wake, at) end
  else
    redis.call('XADD', s.own, '*', 'j', member(p.sequence, group, id))
    redis.call('HINCRBY', s.counts, 'ready:' .. group, 1)
  end
end

-- waits(paused, rate): whether every job goes through the bucket, and why, by these two fields of the settings.
-- returns 'paused'; true = it has a rate; or false
local function waits(paused, rate) return paused == '1' and 'paused' or tonumber(rate or 0) > 0 end
