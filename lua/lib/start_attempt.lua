-- include: history, key_limit, key_pace, key_tickets, progress, report_end, return_unclaimed

local PACED_AT_ONCE = 60 -- entries in one claim of a topic with a pace of keys: each start lets another job be admitted

-- How claim handles jobs that are not plain first attempts: those with progress, or with options of their own. The fields of
-- `claim`, `entry` and `job`: lua/README.md

-- tail_of(s, ttr, ahead): returns the end of the progress of an attempt that is claimed now: started, deadline,
-- consumer. ahead = true: it is claimed ahead of a slot.
local function tail_of(s, ttr, ahead)
  return string.format(ahead and '|-%.0f|%.0f|' or '|%.0f|%.0f|', s.now, s.now + ttr) .. s.consumer
end

-- expire_entry(s, claim, entry, job): the job is too late: removes its entry, and notes it in claim.late, .mains and .expired;
-- claim ends these jobs.
local function expire_entry(s, claim, entry, job)
  drop_entry(s, entry, entry.stream == s.own)
  redis.call('HINCRBY', s.counts, 'expired:' .. s.group, 1)
  claim.expired[#claim.expired + 1] = rare_row(s, 'expired', job,
    {consumer = s.consumer, due = job.due, moved = string.match(entry.id, '^%d+')})
  claim.late[#claim.late + 1], claim.mains[#claim.mains + 1] = job.id, job.progress and job.progress.main or entry.id
  release_key(s, s.group, job.id)
  report_end(s, job, 'expired|')
end

-- begun(s, claim, entry, job): starts the attempt, with the job's own TTR (job.ttr, text, '' = it has none), and the due time
-- of an attempt that is handed on.
-- returns the claim for the caller, and the progress
local function begun(s, claim, entry, job)
  local p, tail = job.progress, claim.tail
  local reply, attempt = entry.id, '1|0|0|' .. entry.id .. '|' .. job.sequence .. '|'
  if p then
    local counted = attempt_of(p, 1) .. '|' .. p.step .. '|' .. p.crashes
    reply = p.main .. '|' .. entry.id .. '|' .. counted .. '|' .. p.deadline
    attempt = counted .. '|' .. p.main .. '|' .. job.sequence .. '|' .. entry.id
  end
  if job.ttr ~= '' then
    tail = tail_of(s, job.ttr, claim.started >= claim.at_once)
    -- reclaim checks claims that were idle for the group's TTR; one with a shorter TTR starts with some idle time.
    if tonumber(job.ttr) < claim.ttr then
      redis.call('XCLAIM', entry.stream, s.group, s.consumer, 0, entry.id, 'IDLE', claim.ttr - job.ttr, 'JUSTID')
    end
  end
  -- If the attempt is handed on later, it keeps its due time.
  if p and p.deadline ~= '' then tail = tail .. '|' .. p.deadline end
  return reply, 'r|' .. attempt .. tail
end

-- unclaimed(p): returns the progress of a running attempt as it was before its claim; nil = there was none
local function unclaimed(p)
  if p.entry == '' then return nil end
  p.state, p.attempt, p.deadline, p.note = 'w', p.attempt - 1, p.due, ''
  p.is_again = true
  return p
end

-- wait_again(s, entry, job, ticket): the job of this entry, which is admitted, waits for its key again.
local function wait_again(s, entry, job, ticket)
  local p, due = job.progress, nil
  drop_entry(s, entry, true)
  p.sequence, due = demote(s, ticket)
  if p.deadline == '' then p.deadline = due end -- a retry that held its key has a due time of its own, and expires by it
  p.state, p.entry, p.started = 'w', '', ''
  redis.call('HSET', s.progress, field_of(s.group, job.id), format(p))
end

-- keep_pace(s, entry, job): sends a job back that may not start yet, because others of its key have started since it was
-- admitted; or notes its start. It waits for its key again, before those that were not admitted yet; so of many that were
-- ready, only the next one is admitted again. A retry that holds its key stays admitted, and comes out just before another
-- one would: otherwise that one might start each time.
-- returns whether it was sent back
local function keep_pace(s, entry, job)
  local ticket = redis.call('HGET', s.key_tickets, field_of(s.group, job.id))
  if not ticket then return false end
  local group_key, _, sequence = parse_ticket(ticket)
  local from = too_early(s, ticket)
  if not from then
    if note_start(s, ticket) then admit_next(s, group_key) end
    return false
  end
  if job.progress.sequence == sequence then
    wait_again(s, entry, job, ticket)
    admit_next(s, group_key)
  else
    job.not_before = from - 1
    return_unclaimed(s, entry, job, job.progress.deadline)
  end
  return true
end

-- obstacle(s, claim, job): why the job of an entry that is up to date may not start now. job.progress: nil = a first
-- attempt. Sets job.due and job.ttr.
-- returns 'early': it was rescheduled before this group was added, or the clock was set back; 'full': the claim has enough
-- jobs; 'later': it is not claimed ahead, and would not start at once; 'expired'; 'held': its key is paused, and it waited
-- for that; nil = nothing; and for 'held' the key's ticket
local function obstacle(s, claim, job)
  local p, started, expiry = job.progress, claim.started, nil
  job.due, job.ttr, expiry = string.match(job.record, '^(%d+)\n%d+\n(%d*)\n(%d*)\n', 13)
  if p and p.deadline ~= '' then job.due = p.deadline end
  if s.now < tonumber(job.due) then return 'early' end
  if started >= claim.count then return 'full' end
  if started >= claim.at_once and p and (claim.is_paced or was_lost(p)) then return 'later' end
  if expiry ~= '' and s.now > job.due + expiry then return 'expired' end
  local ticket = claim.has_paused and redis.call('HGET', s.key_tickets, field_of(s.group, job.id))
  if ticket and is_paused(s, (parse_ticket(ticket))) then return 'held', ticket end
end

-- start_attempt(s, claim, entry, job): starts the attempt of an entry that is up to date, unless it has to wait or is too
-- late. job.progress: nil = a first attempt. Jobs that are not started are counted in claim.dropped, and in claim.refused
-- if they are not claimed ahead and would not start at once.
-- returns the claim and the progress, like begun; nil = it is not started
local function start_attempt(s, claim, entry, job)
  local p, why, ticket = job.progress, obstacle(s, claim, job)
  if why == 'expired' then
    expire_entry(s, claim, entry, job)
  elseif why == 'held' then
    wait_again(s, entry, job, ticket)
  elseif why then
    if why == 'later' then claim.refused = claim.refused + 1 end
    job.progress = p or fresh(job.sequence, entry.id)
    return_unclaimed(s, entry, job, why == 'early' and job.due or p and p.deadline or '')
    local early = why == 'early' and s.key_limit and redis.call('HGET', s.key_tickets, field_of(s.group, job.id))
    if early then admit_next(s, (parse_ticket(early))) end -- jobs of its key that are due sooner now
  elseif not (claim.is_paced and p and not p.is_again and keep_pace(s, entry, job)) then
    return begun(s, claim, entry, job)
  end
  claim.dropped = claim.dropped + 1
end
