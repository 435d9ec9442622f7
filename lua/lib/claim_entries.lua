-- read_topic(k, ttr): reads what claims need to know of the topic and the group. ttr: the group's TTR, if the topic sets
-- none. k.names: the topic's groups as text; k.waits: from requeue.lua; k.paced: whether the topic has a pace of keys.
-- returns the format of the stored data, which is to be checked
local function read_topic(k, ttr)
  local topic = redis.call('HMGET', k.settings, 'paused', 'ttr:' .. k.group, 'ttr', 'watch_until', 'groups', 'rate',
    'generation:' .. k.group, 'largest', 'format', 'after_finish', 'key_limit')
  k.names, k.groups, k.ttr = topic[5], names(topic[5]), tonumber(topic[2] or topic[3] or ttr)
  k.watch_until, k.waits, k.generation, k.largest = topic[4], waits(topic[1], topic[6]), topic[7] or '0', topic[8]
  k.after_finish, k.key_limit = topic[10], topic[11]
  k.paced = string.find(k.key_limit or '', '/')
  return topic[9]
end

-- at_most(k, count): returns how many jobs a call may claim that asks for so many
local function at_most(k, count) return k.paced and math.min(count, PACED_AT_ONCE) or count end

-- load_jobs(k, entries, again): reads what there is of the jobs of these entries.
-- returns their ids, records, fields of the group's progress, and its values
local function load_jobs(k, entries, again)
  local ids, fields, prefix = {}, {}, field_of(k.group, '')
  for i, entry in ipairs(entries) do
    local delivery = entry[2][2]
    local id = i > again and string.sub(delivery, 13) or string.match(delivery, '^\31[^\31]*\31(.*)$', 13) or ''
    ids[i], fields[i] = id, prefix .. id -- '': another client put the entry there; no job has this id
  end
  return ids, redis.call('HMGET', k.jobs, unpack(ids)), fields, redis.call('HMGET', k.progress, unpack(fields))
end

-- claim_entries(k, entries, again): ready -> running, the jobs of these entries, which are pending for the consumer; drops
-- entries that are out of date. The first `again` entries are from ready:GROUP. k.count: how many to claim at most;
-- k.at_once: how many of them the caller starts at once; k.cap: of the history. The caller counts the ready jobs.
-- returns the claims, ids and records as in the reply of claim, and how many jobs are no longer ready
local function claim_entries(k, entries, again)
  k.now_text, k.left, k.refused, k.late, k.mains, k.expired = string.format('%.0f', k.now), 0, 0, {}, {}, {}
  local n = #entries
  if n == 0 then return {}, {}, {}, 0 end
  local group, count, at_once, now_text = k.group, k.count, k.at_once, k.now_text
  local ids, records, fields, states = load_jobs(k, entries, again)
  k.holds_back = k.key_limit and redis.call('ZCARD', k.key_paused) > 0
  local claims, marks, started, tail = {}, {}, 0, tail_of(k, k.ttr, at_once == 0)

  for i = 1, n do
    local shared, entry, record, state = i > again, entries[i][1], records[i], states[i]
    local stream, sequence = shared and k.ready or k.own, string.sub(entries[i][2][2], 1, 12)
    local same = record and string.find(record, sequence, 1, true) == 1
    local p, claim, mark = parse(state), nil, nil
    local running = p and p.state == 'r' and (p.entry == '' and p.main or p.entry) == entry
    if shared and same and not p and started < count and string.find(record, '\n\n\n', 40, true) == 40
        and string.sub(record, 13, 25) <= now_text then -- nearly always: no TTR or expiry of its own, and due
      claim, mark = entry, 'r|1|0|0|' .. entry .. '|' .. sequence .. '|' .. tail
    elseif not record then
      -- The job is lost; reclaim counts it, by the entry if it was running.
      if not running then drop_entry(stream, group, entry, true) end
      if p and p.state == 'w' then forget_lost(k, group, ids[i]) end
    elseif running then
      redis.call('HINCRBY', k.counts, 'running:' .. group, -1)
      if p.note == k.consumer and entries[i].asked then
        -- It claimed what it had read, and asks again: it got no reply. The answer is the same, and no attempt is lost.
        redis.call('HINCRBY', k.counts, 'ready:' .. group, 1)
        claim, mark = start_attempt(k, stream, entry, ids[i], record, sequence, unclaimed(p), started, tail)
      else
        -- The group was created again, and this entry was read again after it had been claimed. The job gets a new entry,
        -- so that the old claim is refused.
        p.note = ''
        return_unclaimed(k, k.groups, stream, group, entry, ids[i], p, p.due, k.now)
      end
    elseif shared and p then
      drop_entry(stream, group, entry, not same)
    elseif shared and same or p and p.state == 'w' and p.sequence == sequence then
      claim, mark = start_attempt(k, stream, entry, ids[i], record, sequence, p, started, tail)
    else
      drop_entry(stream, group, entry, true)
    end
    if claim then
      claims[i], marks[started * 2 + 1], marks[started * 2 + 2] = claim, fields[i], mark
      started = started + 1
      if started == at_once and started < count then tail = tail_of(k, k.ttr, true) end -- claimed ahead from now on
    end
  end
  k.gone = leaving_pool(k.after_finish, k.taken, k.taken_until, k.now)
  settle(k, k.groups, group, k.late, k.mains)
  remember(k.history, k.counts, k.settings, k.cap, k.expired)
  if started > 0 then
    redis.call('HSET', k.progress, unpack(marks))
    local running = redis.call('HINCRBY', k.counts, 'running:' .. group, started)
    -- The first claim after a quiet time: the mover must start to watch its TTR.
    if running == started and not is_watched(k.watch_until, k.now) then ring(k.wake, k.now + k.ttr) end
  end
  for i = 1, started < n and n or 0 do claims[i] = claims[i] or '' end
  return claims, ids, records, started + k.left
end
