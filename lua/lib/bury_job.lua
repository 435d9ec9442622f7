-- bury_job(k, group, id, p, now, reason, error): makes the job a dead letter of `group`, with the reason and the error.
local function bury_job(k, group, id, p, now, reason, error)
  p.state, p.entry, p.started, p.deadline, p.note = 'd', '', '', '', reason .. '|' .. error
  redis.call('HSET', k.progress, field_of(group, id), format(p))
  redis.call('ZADD', k.dead, now, id)
  redis.call('HINCRBY', k.counts, 'dead:' .. group, 1)
end
