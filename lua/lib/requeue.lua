-- requeue(k, group, id, p, due, waits): the job is ready for `group` again, in the group's own stream; or waits in the
-- bucket, because the topic is paused. The caller has taken the old entry away and written off the state it left.
-- k = {progress=, counts=, own=, bucket=}
local function requeue(k, group, id, p, due, waits)
  p.state, p.entry, p.started, p.deadline = 'w', '', '', string.format('%.0f', due)
  redis.call('HSET', k.progress, field_of(group, id), format(p))
  if waits then
    redis.call('ZADD', k.bucket, due, member(p.sequence, group, id))
    redis.call('HINCRBY', k.counts, 'waiting:' .. group, 1)
  else
    redis.call('XADD', k.own, '*', 'j', member(p.sequence, group, id))
    redis.call('HINCRBY', k.counts, 'ready:' .. group, 1)
  end
end
-- fresh(sequence, main): the progress of a group that has not started the job yet.
local function fresh(sequence, main)
  return {state = 'w', attempt = 0, snoozed = '', step = 0, crashes = 0, main = main, sequence = sequence, entry = '', started = '',
    deadline = '', note = ''}
end
