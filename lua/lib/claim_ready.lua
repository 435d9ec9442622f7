-- include: claim_entries, clock, groups, read, start_attempt, stored_format

-- claim_ready(s, args): ready -> running, what claim and claim_ranked do. args: as those of claim.
-- returns the reply
local function claim_ready(s, args)
  s.now, s.group, s.consumer, s.history_cap = now_ms(args[1]), args[2], args[3], args[6]
  local claim = open_claim(s, args[5])
  check_format(claim.format)
  if not has(s.groups, s.group) then return {-1} end
  local status = s.waits == 'paused' and 0 or 1
  claim.count = status * math.min(tonumber(args[4]), claim.is_paced and PACED_AT_ONCE or math.huge)
  claim.at_once = math.min(claim.count, tonumber(args[7]))
  local given, unlooked = {[s.own] = {}, [s.ready] = {}}, 0
  local budget = budget_of(s.jobs, claim.largest, claim.count + #args / 3)
  for i = 8, #args, 3 do
    local stream, entry = args[i] == 'm' and s.ready or s.own, {args[i + 1], {'j', args[i + 2]}}
    -- A consumer that was stopped between its read and this call has lost the entry: it was handed over with another id.
    if unlooked > 0 or claim.is_paced and i >= 8 + 3 * PACED_AT_ONCE or not fits(budget, length_of(budget, entry)) then
      unlooked = unlooked + 1
    elseif is_held(s, stream, entry) then
      table.insert(given[stream], entry)
    end
  end
  -- If nothing is read besides, this is the first write. A full Redis lets a script continue if that needs no memory.
  if #args > 7 then redis.call('HDEL', s.progress, '') end
  local entries, own_count = both_streams(s, budget, given, unlooked > 0 and 0 or claim.count)
  local claims, ids, records, no_longer_ready = claim_entries(s, claim, entries, own_count)
  -- 0 comes first: Lua writes -0 as '-0', which Redis does not accept as a number.
  local unread = #entries == 0 and 0 or redis.call('HINCRBY', s.counts, 'ready:' .. s.group, 0 - no_longer_ready)
  return {status, s.now, claim.ttr, unread, claims, ids, records, #claim.expired, claim.generation, claim.refused, unlooked}
end
