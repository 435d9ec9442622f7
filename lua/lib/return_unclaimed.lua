-- drop_entry(stream, group, entry, remove): acknowledges the entry; remove = true also removes it.
local function drop_entry(stream, group, entry, remove)
  redis.call('XACK', stream, group, entry)
  if remove then redis.call('XDEL', stream, entry) end
end

-- return_unclaimed(k, groups, stream, group, entry, id, p, due, now): sends the job of a pending entry back, without
-- claiming it, to the group's own stream or the bucket. p, due: as for requeue.
local function return_unclaimed(k, groups, stream, group, entry, id, p, due, now)
  drop_entry(stream, group, entry, stream == k.own)
  if stream == k.ready then p.main = detach(k, groups, p.main) end
  requeue(k, group, id, p, due, now, p.state ~= 'r')
end
