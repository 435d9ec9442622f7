-- drop(stream, group, entry, remove): the entry is confirmed, and removed.
local function drop(stream, group, entry, remove)
  redis.call('XACK', stream, group, entry)
  if remove then redis.call('XDEL', stream, entry) end
end
-- put_back(k, groups, stream, group, entry, id, p, due, now): a pending entry is not claimed: the job goes back to where
-- its group alone finds it. `due` as requeue takes it.
-- k = {jobs=, ready=, own=, bucket=, progress=, counts=, wake=, waits=}
local function put_back(k, groups, stream, group, entry, id, p, due, now)
  drop(stream, group, entry, stream == k.own)
  if stream == k.ready then p.main = detach(k, groups, p.main) end
  requeue(k, group, id, p, due, now, p.state ~= 'r')
end
