-- include: end_aborted, end_in_group, progress

-- main, entry and consumer of a running attempt
local CLAIM = '^r|[^|]*|[^|]*|[^|]*|([^|]*)|[^|]*|([^|]*)|[^|]*|[^|]*|([^|]*)'

-- ends_aborted(s, args, i, value): ends the claim in args[i..], if it is that of an aborted attempt. value: of the progress.
-- returns whether it is
local function ends_aborted(s, args, i, value)
  local p = parse(value)
  if not (p and p.aborted and p.main == args[i] and p.entry == args[i + 1] and p.note == s.consumer) then return false end
  if p.entry == '' then redis.call('XACK', s.ready, s.group, p.main) else redis.call('XACK', s.own, s.group, p.entry) end
  end_aborted(s, {group = s.group, id = args[i + 2], progress = p})
  return true
end

-- fence(s, args, width, first): finds out which of the claims in args[first..] (main, entry, id, ... `width` values each;
-- first: 6 if it is nil) s.consumer still holds for s.group, and acknowledges their entries. A take-over
-- adds a new entry and notes it in the progress, so a claim holds exactly as long as the progress names its entry and its
-- consumer: if Redis lost the claim in a failover, the same entry can be claimed by another one. XACK's reply alone would
-- not tell: if the consumer has read the entry again, it is pending, and must stay so until it is claimed.
-- A claim whose attempt was aborted ends here: its job is cancelled, whatever the script would have made of it. Its progress
-- has another state, so that only claims which don't match are looked at twice.
-- returns nil = all of them, otherwise {[index in args] = 1} of those that it has lost, -1 = cancelled; and the progress
-- field of each
local function fence(s, args, width, first)
  local group, consumer, fields, n = s.group, s.consumer, {}, 0
  local prefix = field_of(group, '')
  first = first or 6
  for i = first, #args, width do
    n = n + 1
    fields[n] = prefix .. args[i + 2]
  end
  local values, lost, seen, shared, own = values_of(s.progress, fields), nil, {}, {}, {}
  for j = 1, n do
    local i, main, entry, by = first + (j - 1) * width, nil, nil, nil
    if values[j] and not seen[fields[j]] then main, entry, by = string.match(values[j], CLAIM) end
    if main == args[i] and entry == args[i + 1] and by == consumer then
      seen[fields[j]] = true
      if entry == '' then shared[#shared + 1] = main else own[#own + 1] = entry end
    else
      lost = lost or {}
      lost[i] = not seen[fields[j]] and ends_aborted(s, args, i, values[j]) and -1 or 1
      seen[fields[j]] = seen[fields[j]] or lost[i] == -1
    end
  end
  if #shared > 0 then redis.call('XACK', s.ready, group, unpack(shared)) end
  if #own > 0 then redis.call('XACK', s.own, group, unpack(own)) end
  return lost, fields
end
