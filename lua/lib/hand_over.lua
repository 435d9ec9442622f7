-- include: end_aborted, end_in_group, key_limit, progress, requeue

-- return_entry(s, losses, entry, job): a pending entry whose job is to be delivered anew: the job goes back, with a new entry.
local function return_entry(s, losses, entry, job)
  local p = job.progress or fresh(job.sequence, entry.id)
  job.progress = p
  if job.is_running and losses.on_lost then losses.on_lost(job)
  elseif job.is_running then p.attempt, p.note = p.attempt - 1, '' end
  if entry.stream == s.ready then p.main = detach(s, p.main) else redis.call('XDEL', entry.stream, entry.id) end
  -- read, but never claimed: its consumer died between the two, and it still counts as ready
  redis.call('HINCRBY', s.counts, (job.is_running and 'running:' or 'ready:') .. s.group, -1)
  local due = job.is_running and p.due or p.deadline
  if due == '' and (job.is_unread or s.waits) then due = string.match(job.record, '^%d+', 13) end
  job.not_before = job.is_running and losses.on_lost and tonumber(p.crashes) >= 2 and s.now + math.random(0, losses.apart_ms)
    or nil
  requeue(s, job, due, job.is_unread)
end

-- hand_over(s, losses, entry): a consumer is gone or too late; makes its pending entry of s.group ready for others. The old
-- entry is acknowledged and a new one added, so the old claim is refused from now on. entry = {stream=, id=, member=}
-- A running job without a record is lost: it is counted, also in losses.lost. Jobs lost twice in a row are held back, each
-- for a random time of at most losses.apart_ms: one of them may be what kills their consumers, and the others were only
-- claimed together with it. The fields of losses: lua/README.md
-- The job of an attempt that was aborted is cancelled instead.
-- returns the job of an entry that was left alone, if it has progress; otherwise nil
local function hand_over(s, losses, entry)
  local sequence, rest = string.sub(entry.member, 1, 12), string.sub(entry.member, 13)
  local id = string.match(rest, '^\31[^\31]*\31(.*)$') or rest
  local p = parse(redis.call('HGET', s.progress, field_of(s.group, id)))
  local is_running = p and p.state == 'r' and (p.entry == '' and p.main or p.entry) == entry.id
  local job = {group = s.group, id = id, sequence = sequence, progress = p, is_running = is_running}
  if losses.stays and losses.stays(p, is_running) then return p and job end

  local record = redis.call('HGET', s.jobs, id)
  local is_shared, is_same = entry.stream == s.ready, record and string.sub(record, 1, 12) == sequence
  local waits_by_it = p and p.state == 'w' and p.sequence == sequence
  job.record = record
  job.is_unread = is_shared and not p and is_same or not is_shared and waits_by_it
  losses.bytes = (losses.bytes or 0) + #(record or '')
  redis.call('XACK', entry.stream, s.group, entry.id)
  if is_running and record and p.aborted then return end_aborted(s, job) end
  if is_running and not record then
    redis.call('HINCRBY', s.counts, 'running:' .. s.group, -1)
    redis.call('HINCRBY', s.counts, 'lost:' .. s.group, 1)
    forget_lost(s, s.group, id)
    losses.lost = (losses.lost or 0) + 1
  elseif not record and waits_by_it then
    forget_lost(s, s.group, id) -- missing_jobs counts it
  end
  if record and (is_running or job.is_unread) then
    return_entry(s, losses, entry, job)
  elseif not (is_shared and is_same) then
    -- Other groups may need the shared entry, unless its delivery is out of date.
    redis.call('XDEL', entry.stream, entry.id)
  end
end
