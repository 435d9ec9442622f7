-- include: end_aborted, end_in_group, groups, history, key_limit, notify_mover, progress, removal, requeue, results,
--   return_unclaimed, start_attempt

-- open_claim(s, ttr, count): reads what a claim needs to know of the topic and the group. ttr: the group's TTR, if the topic
-- sets none; count: how many to claim at most, text. Sets s.groups, s.waits, s.key_limit and s.results.
-- returns the claim (lua/README.md), without counters
local function open_claim(s, ttr, count)
  local topic = redis.call('HMGET', s.settings, 'paused', 'ttr:' .. s.group, 'ttr', 'watch_until', 'groups', 'rate',
    'generation:' .. s.group, 'largest', 'format', 'after_finish', 'key_limit', 'results', 'linked')
  s.groups, s.waits, s.key_limit = names(topic[5]), waits(topic[1], topic[6]), topic[11]
  s.results = results_in(topic[12])
  local is_paced = string.find(s.key_limit or '', '/') and true or false
  local most = s.waits == 'paused' and 0 or is_paced and PACED_AT_ONCE or math.huge
  return {ttr = tonumber(topic[2] or topic[3] or ttr), count = math.min(tonumber(count), most), watch_until = topic[4],
    generation = topic[7] or '0', largest = topic[8], format = topic[9], after_finish = topic[10], linked = topic[13],
    is_paced = is_paced}
end

-- load_jobs(s, entries, own_count): reads what there is of the jobs of these entries.
-- returns their ids, records, fields of the group's progress, and its values
local function load_jobs(s, entries, own_count)
  local ids, fields, prefix = {}, {}, field_of(s.group, '')
  for i, entry in ipairs(entries) do
    local delivery = entry[2][2]
    local id = i > own_count and string.sub(delivery, 13) or string.match(delivery, '^\31[^\31]*\31(.*)$', 13) or ''
    ids[i], fields[i] = id, prefix .. id -- '': another client put the entry there; no job has this id
  end
  return ids, redis.call('HMGET', s.jobs, unpack(ids)), fields, redis.call('HMGET', s.progress, unpack(fields))
end

-- claim_again(s, claim, entry, job): an entry whose job runs by it, or did so: the consumer has asked for the entry again, as
-- it got no reply, or has read it again; or its first call comes late.
-- returns the claim and the progress, like begun; nil = the job is not claimed
local function claim_again(s, claim, entry, job)
  local p = job.progress
  if p.aborted then
    drop_entry(s, entry, false)
    return end_aborted(s, job)
  end
  if p.note == s.consumer and entry.asked then
    -- The answer is the same as before, and no attempt is lost. If the job may not start any more, it may run all the same, by
    -- an answer that did arrive: it keeps its claim until its TTR has passed. It does run if its handler has given it more time.
    local deadline = tonumber(p.deadline)
    job.progress = unclaimed(p)
    if obstacle(s, claim, job) or deadline > s.now + (tonumber(job.ttr) or claim.ttr) then return end
    redis.call('HINCRBY', s.counts, 'running:' .. s.group, -1)
    redis.call('HINCRBY', s.counts, 'ready:' .. s.group, 1)
    return start_attempt(s, claim, entry, job)
  end
  redis.call('HINCRBY', s.counts, 'running:' .. s.group, -1)
  -- The group was created again, and this entry was read again after it had been claimed. The job gets a new entry, so
  -- that the old claim is refused.
  p.note = ''
  return_unclaimed(s, entry, job, p.due)
end

-- claim_entry(s, claim, entry, job): ready -> running, the job of an entry, if it is up to date; drops the entry otherwise.
-- returns the claim and the progress, like begun; nil = the job is not claimed
local function claim_entry(s, claim, entry, job)
  local p, is_shared = job.progress, entry.stream == s.ready
  local is_same = job.record and string.find(job.record, job.sequence, 1, true) == 1
  local is_running = p and p.state == 'r' and (p.entry == '' and p.main or p.entry) == entry.id
  if not job.record then
    -- The job is lost; reclaim counts it, by the entry if it was running.
    if not is_running then drop_entry(s, entry, true) end
    if p and p.state == 'w' then forget_lost(s, s.group, job.id) end
  elseif is_running then
    return claim_again(s, claim, entry, job)
  elseif is_shared and p then
    drop_entry(s, entry, not is_same)
  elseif is_shared and is_same or p and p.state == 'w' and p.sequence == job.sequence then
    return start_attempt(s, claim, entry, job)
  else
    drop_entry(s, entry, true)
  end
end

-- claim_entries(s, claim, entries, own_count): ready -> running, the jobs of these entries, which are pending for the
-- consumer; drops entries that are out of date. The first own_count entries are from ready:GROUP. The caller counts the
-- ready jobs.
-- returns the claims, ids and records as in the reply of claim, and how many jobs are no longer ready
local function claim_entries(s, claim, entries, own_count)
  local now_text, n = string.format('%.0f', s.now), #entries
  claim.started, claim.dropped, claim.refused, claim.late, claim.mains, claim.expired = 0, 0, 0, {}, {}, {}
  if n == 0 then return {}, {}, {}, 0 end
  local ids, records, fields, states = load_jobs(s, entries, own_count)
  claim.has_paused = s.key_limit and redis.call('ZCARD', s.key_paused) > 0
  claim.tail = tail_of(s, claim.ttr, claim.at_once == 0)
  local claims, marks, count, at_once = {}, {}, claim.count, claim.at_once
  s.on_removed = after_removal(s, claim.after_finish, claim.linked)

  for i = 1, n do
    local id, record, state, claimed, mark = entries[i][1], records[i], states[i], nil, nil
    local sequence, started = string.sub(entries[i][2][2], 1, 12), claim.started
    if i > own_count and record and not state and started < count and string.find(record, sequence, 1, true) == 1
        and string.find(record, '\n\n\n', 40, true) == 40 and string.sub(record, 13, 25) <= now_text then
      -- nearly always: a first attempt, with no TTR or expiry of its own, and due
      claimed, mark = id, 'r|1|0|0|' .. id .. '|' .. sequence .. '|' .. claim.tail
    else
      local entry = {stream = i > own_count and s.ready or s.own, id = id, asked = entries[i].asked}
      claimed, mark = claim_entry(s, claim, entry,
        {group = s.group, id = ids[i], record = record, sequence = sequence, progress = parse(state)})
    end
    if claimed then
      claims[i], marks[started * 2 + 1], marks[started * 2 + 2] = claimed, fields[i], mark
      claim.started = started + 1
      if claim.started == at_once and at_once < count then claim.tail = tail_of(s, claim.ttr, true) end -- ahead from now on
    end
  end
  fail_in_group(s, 'expired', claim.late, claim.mains)
  remember(s, claim.expired)
  local started = claim.started
  if started > 0 then
    redis.call('HSET', s.progress, unpack(marks))
    local running = redis.call('HINCRBY', s.counts, 'running:' .. s.group, started)
    -- The first claim after a quiet time: the mover must start to watch its TTR.
    if running == started and not is_watched(claim.watch_until, s.now) then notify_mover(s.wake, s.now + claim.ttr) end
  end
  for i = 1, started < n and n or 0 do claims[i] = claims[i] or '' end
  return claims, ids, records, started + claim.dropped
end
