-- refused(now, args, width, first): refuses all claims in args[first..], `width` values each, as their group is gone.
-- first: 6 if it is nil.
-- returns the script's reply: {now, 1, 2, ...}
local function refused(now, args, width, first)
  local reply = {now}
  for i = 1, (#args - (first or 6) + 1) / width do reply[i + 1] = i end
  return reply
end

-- main, entry and consumer of a running attempt
local CLAIM = '^r|[^|]*|[^|]*|[^|]*|([^|]*)|[^|]*|([^|]*)|[^|]*|[^|]*|([^|]*)'

-- fence(s, args, width, first): finds out which of the claims in args[first..] (main, entry, id, ... `width` values each;
-- first: 6 if it is nil) s.consumer still holds for s.group, and acknowledges their entries. A take-over
-- adds a new entry and notes it in the progress, so a claim holds exactly as long as the progress names its entry and its
-- consumer: if Redis lost the claim in a failover, the same entry can be claimed by another one. XACK's reply alone would
-- not tell: if the consumer has read the entry again, it is pending, and must stay so until it is claimed.
-- returns nil = all of them, otherwise {[index in args] = true} of those that it has lost; and the progress field of each
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
      lost[i] = true
    end
  end
  if #shared > 0 then redis.call('XACK', s.ready, group, unpack(shared)) end
  if #own > 0 then redis.call('XACK', s.own, group, unpack(own)) end
  return lost, fields
end
