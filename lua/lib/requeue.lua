-- requeue(k, group, id, p, now, paused): the job is ready for `group` again, in the group's own stream; while the topic
-- is paused it waits in the bucket. The caller has taken the old entry away and written off the state it left.
-- k = {progress=, counts=, own=, bucket=}
local function requeue(k, group, id, p, now, paused)
  p.state, p.entry, p.started, p.deadline = 'w', '', '', string.format('%.0f', now)
  redis.call('HSET', k.progress, field_of(group, id), format(p))
  if paused then
    redis.call('ZADD', k.bucket, now, member(p.sequence, group, id))
    redis.call('HINCRBY', k.counts, 'waiting:' .. group, 1)
  else
    redis.call('XADD', k.own, '*', 'j', member(p.sequence, group, id))
    redis.call('HINCRBY', k.counts, 'ready:' .. group, 1)
  end
end
-- fresh(sequence, main): the progress of a group that has not started the job yet.
local function fresh(sequence, main)
  return {state = 'w', attempt = 0, step = 0, crashes = 0, main = main, sequence = sequence, entry = '', started = '',
    deadline = '', note = ''}
end
