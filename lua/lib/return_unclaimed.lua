-- include: end_in_group, requeue

-- drop_entry(s, entry, remove): acknowledges an entry of s.group; remove = true also removes it. entry = {stream=, id=}
local function drop_entry(s, entry, remove)
  redis.call('XACK', entry.stream, s.group, entry.id)
  if remove then redis.call('XDEL', entry.stream, entry.id) end
end

-- return_unclaimed(s, entry, job, due): sends the job of a pending entry back, without claiming it, to the group's own stream
-- or the bucket. due: as for requeue.
local function return_unclaimed(s, entry, job, due)
  local p = job.progress
  drop_entry(s, entry, entry.stream == s.own)
  if entry.stream == s.ready then p.main = detach(s, p.main) end
  requeue(s, job, due, p.state ~= 'r')
end
