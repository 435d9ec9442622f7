-- hand_over(k, stream, entry, group, id, sequence, now, ended): a consumer is gone or too late; makes its pending entry
-- ready for others. The old entry is acknowledged and a new one added, so the old claim is refused from now on.
-- `ended(id, p, record)`, if given, is called with the attempt that was running and may change its progress p. Without
-- `ended` a running attempt goes back and does not count. k.stays(p, running), if given, tells which entries are left
-- alone, because their consumer may still be there; p: nil = the group has no progress.
-- A running job without a record is lost: it is counted, also in k.lost. k.bytes sums the bytes of the records read.
-- Jobs lost twice in a row are held back, each for a random time of at most k.apart_ms: one of them may be what kills
-- their consumers, and the others were only claimed together with it.
-- returns the progress of an entry that was left alone; otherwise nil
local function hand_over(k, stream, entry, group, id, sequence, now, ended)
  local p = parse(redis.call('HGET', k.progress, field_of(group, id)))
  local running = p and p.state == 'r' and (p.entry == '' and p.main or p.entry) == entry
  if k.stays and k.stays(p, running) then return p end

  local record = redis.call('HGET', k.jobs, id)
  local shared, same = stream == k.ready, record and string.sub(record, 1, 12) == sequence
  local unread = shared and not p and same or not shared and p and p.state == 'w' and p.sequence == sequence
  k.bytes = (k.bytes or 0) + #(record or '')
  redis.call('XACK', stream, group, entry)
  if running and not record then
    redis.call('HINCRBY', k.counts, 'running:' .. group, -1)
    redis.call('HINCRBY', k.counts, 'lost:' .. group, 1)
    forget_lost(k, group, id)
    k.lost = (k.lost or 0) + 1
  elseif not record and p and p.state == 'w' and p.sequence == sequence then
    forget_lost(k, group, id) -- missing_jobs counts it
  end
  if not record or not (running or unread) then
    -- Other groups may need the shared entry, unless its delivery is out of date.
    if not (shared and same) then redis.call('XDEL', stream, entry) end
    return nil
  end
  p = p or fresh(sequence, entry)
  if running then
    if ended then ended(id, p, record) else p.attempt, p.note = p.attempt - 1, '' end
  end
  if shared then p.main = detach(k, k.groups, p.main) else redis.call('XDEL', stream, entry) end
  -- read, but never claimed: its consumer died between the two, and it still counts as ready
  redis.call('HINCRBY', k.counts, (running and 'running:' or 'ready:') .. group, -1)
  local due = running and p.due or p.deadline
  if due == '' and (unread or k.waits) then due = string.match(record, '^%d+', 13) end
  k.not_before = running and ended and tonumber(p.crashes) >= 2 and now + math.random(0, k.apart_ms)
  requeue(k, group, id, p, due, now, unread)
end
