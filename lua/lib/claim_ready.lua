-- include: claim_entries, read, start_attempt

-- claim_ready(s, claim, asked): ready -> running, what claim and claim_ranked do. claim: of open_claim. asked =
-- {at_once=, read=}: their arguments; read: the entries that were read already.
-- returns the reply
local function claim_ready(s, claim, asked)
  local read = asked.read
  claim.at_once = math.min(claim.count, tonumber(asked.at_once))
  local given, unlooked = {[s.own] = {}, [s.ready] = {}}, 0
  local budget = budget_of(s.jobs, claim.largest, claim.count + #read / 3)
  for i = 1, #read, 3 do
    local stream, entry = read[i] == 'm' and s.ready or s.own, {read[i + 1], {'j', read[i + 2]}}
    -- A consumer that was stopped between its read and this call has lost the entry: it was handed over with another id.
    if unlooked > 0 or claim.is_paced and i > 3 * PACED_AT_ONCE or not fits(budget, length_of(budget, entry)) then
      unlooked = unlooked + 1
    elseif is_held(s, stream, entry) then
      table.insert(given[stream], entry)
    end
  end
  -- If nothing is read besides, this is the first write. A full Redis lets a script continue if that needs no memory.
  if #read > 0 then redis.call('HDEL', s.progress, '') end
  local entries, own_count = both_streams(s, budget, given, unlooked > 0 and 0 or claim.count)
  local claims, ids, records, no_longer_ready = claim_entries(s, claim, entries, own_count)
  -- 0 comes first: Lua writes -0 as '-0', which Redis does not accept as a number.
  local unread = #entries == 0 and 0 or redis.call('HINCRBY', s.counts, 'ready:' .. s.group, 0 - no_longer_ready)
  return {s.waits == 'paused' and 0 or 1, s.now, claim.ttr, unread, claims, ids, records, #claim.expired, claim.generation, claim.refused, unlooked}
end
