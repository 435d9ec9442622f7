local PACED_AT_ONCE = 60 -- entries in one claim of a topic with a pace of keys: each start lets another job out

-- How claim handles jobs that are not plain first attempts: those with progress, or with options of their own.

-- tail_of(k, ttr, ahead): returns the end of the progress of an attempt that is claimed now: started, deadline,
-- consumer. ahead = true: it is claimed ahead of a slot.
local function tail_of(k, ttr, ahead)
  return (ahead and '|-' or '|') .. k.now_text .. string.format('|%.0f|', k.now + ttr) .. k.consumer
end

-- expire_entry(k, stream, entry, id, record, p, due): the job is too late: removes its entry, and adds it to k.late,
-- its `main` to k.mains and its history row to k.expired; claim ends these jobs. p may be nil.
local function expire_entry(k, stream, entry, id, record, p, due)
  drop_entry(stream, k.group, entry, stream == k.own)
  redis.call('HINCRBY', k.counts, 'expired:' .. k.group, 1)
  k.expired[#k.expired + 1] = rare_row('expired', id, k.group, p, record, k.now,
    {consumer = k.consumer, due = due, moved = string.match(entry, '^%d+')})
  k.late[#k.late + 1], k.mains[#k.mains + 1] = id, p and p.main or entry
  release_key(k, k.group, id)
end

-- begun(k, stream, entry, ttr, sequence, p, taken, tail): starts the attempt, with the job's own TTR (text, '' = it has
-- none), and the due time of an attempt that is handed on. The other parameters are those of start_attempt.
-- returns the claim for the caller, and the progress
local function begun(k, stream, entry, ttr, sequence, p, taken, tail)
  local claim, attempt = entry, '1|0|0|' .. entry .. '|' .. sequence .. '|'
  if p then
    local counted = attempt_of(p, 1) .. '|' .. p.step .. '|' .. p.crashes
    claim = p.main .. '|' .. entry .. '|' .. counted .. '|' .. p.deadline
    attempt = counted .. '|' .. p.main .. '|' .. sequence .. '|' .. entry
  end
  if ttr ~= '' then
    tail = tail_of(k, ttr, taken >= k.at_once)
    -- reclaim checks claims that were idle for the group's TTR; one with a shorter TTR starts with some idle time.
    if tonumber(ttr) < k.ttr then
      redis.call('XCLAIM', stream, k.group, k.consumer, 0, entry, 'IDLE', k.ttr - ttr, 'JUSTID')
    end
  end
  -- If the attempt is handed on later, it keeps its due time.
  if p and p.deadline ~= '' then tail = tail .. '|' .. p.deadline end
  return claim, 'r|' .. attempt .. tail
end

-- unclaimed(p): returns the progress of a running attempt as it was before its claim; nil = there was none
local function unclaimed(p)
  if p.entry == '' then return nil end
  p.state, p.attempt, p.deadline, p.note = 'w', p.attempt - 1, p.due, ''
  p.is_again = true
  return p
end

-- send_back(k, entry, id, p, ticket): the job of this entry, which is admitted, waits for its key again.
local function send_back(k, entry, id, p, ticket)
  drop_entry(k.own, k.group, entry, true)
  local due
  p.sequence, due = demote(k, ticket)
  if p.deadline == '' then p.deadline = due end -- a retry that held its key has a due time of its own, and expires by it
  p.state, p.entry, p.started = 'w', '', ''
  redis.call('HSET', k.progress, field_of(k.group, id), format(p))
end

-- hold_back(k, entry, id, p): a job waits for its key again, if that is paused.
-- returns whether it does; a job that never waited for its key does not
local function hold_back(k, entry, id, p)
  local ticket = redis.call('HGET', k.key_tickets, field_of(k.group, id))
  if not ticket or not is_paused(k, (parse_ticket(ticket))) then return false end
  send_back(k, entry, id, p, ticket)
  return true
end

-- keeps_pace(k, entry, id, p): sends a job back that may not start yet, because others of its key have started since it was
-- admitted; or notes its start. It waits for its key again, before those that were not admitted yet; so of many that were
-- ready, only the next one is admitted again. A retry that holds its key stays admitted, and comes out just before another
-- one would: otherwise that one might start each time.
-- returns whether it was sent back
local function keeps_pace(k, entry, id, p)
  local ticket = redis.call('HGET', k.key_tickets, field_of(k.group, id))
  if not ticket then return false end
  local group_key, _, sequence = parse_ticket(ticket)
  local from = too_early(k, ticket)
  if not from then
    if note_start(k, ticket) then admit_next(k, group_key) end
    return false
  end
  if p.sequence == sequence then
    send_back(k, entry, id, p, ticket)
    admit_next(k, group_key)
  else
    k.not_before = from - 1
    return_unclaimed(k, k.groups, k.own, k.group, entry, id, p, p.deadline, k.now)
    k.not_before = nil
  end
  return true
end

-- start_attempt(k, stream, entry, id, record, sequence, p, taken, tail): starts the attempt of an entry that is up to
-- date, unless it has to wait or is too late. taken: how many this call has started; tail: from tail_of, for the
-- group's TTR; p: nil = a first attempt. k.left and k.refused count jobs that are not started: those that are no longer
-- ready, and those that are not claimed ahead and would not start at once. k.holds_back: a key is paused; k.paced: the topic
-- has a pace of keys.
-- returns the claim and the progress, like begun; nil = it is not started
local function start_attempt(k, stream, entry, id, record, sequence, p, taken, tail)
  local due, ttr, expiry = string.match(record, '^(%d+)\n%d+\n(%d*)\n(%d*)\n', 13)
  if p and p.deadline ~= '' then due = p.deadline end
  if k.now < tonumber(due) then -- rescheduled before this group was added, or the clock was set back
    return_unclaimed(k, k.groups, stream, k.group, entry, id, p or fresh(sequence, entry), due, k.now)
  elseif taken >= k.count or taken >= k.at_once and p and (k.paced or was_lost(p)) then
    if taken < k.count then k.refused = k.refused + 1 end
    local again = p and p.deadline or ''
    return_unclaimed(k, k.groups, stream, k.group, entry, id, p or fresh(sequence, entry), again, k.now)
  elseif expiry ~= '' and k.now > due + expiry then
    expire_entry(k, stream, entry, id, record, p, due)
  elseif not (k.holds_back and p and stream == k.own and hold_back(k, entry, id, p))
      and not (k.paced and p and not p.is_again and keeps_pace(k, entry, id, p)) then
    return begun(k, stream, entry, ttr, sequence, p, taken, tail)
  end
  k.left = k.left + 1
end
