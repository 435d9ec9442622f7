-- include: progress

-- delivery_of(p): returns which delivery of a job a group has: the sequence, and the attempts before it
local function delivery_of(p) return p.sequence .. '/' .. attempt_of(p, 0) end

-- letter_in(argument): the parts of 'ID', or of 'ID\31DELIVERY' or 'ID\31DELIVERY/NONCE' for a dead letter as it was shown.
-- returns the id, and the delivery_of or nil; and the nonce, '' = not known
local function letter_in(argument)
  local id, delivery, nonce = string.match(argument, '^([^\31]*)\31([^/]*/[^/]*)/?(.*)$')
  return id or argument, delivery, nonce
end

-- has_nonce(jobs, id, nonce): whether the job is the one with this nonce (up to a '|'); '' = any. A topic that is made again
-- counts its deliveries anew.
-- returns true or false
local function has_nonce(jobs, id, nonce)
  local record = nonce ~= '' and redis.call('HGET', jobs, id)
  return not record or string.match(record, '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n([^|\n]*)') == nonce
end
