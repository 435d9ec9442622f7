-- delivery_of(p): returns which delivery of a job a group has: the sequence, and the attempts before it
local function delivery_of(p) return p.sequence .. '/' .. attempt_of(p, 0) end

-- letter_in(argument): the parts of 'ID', or of 'ID\31DELIVERY' for a dead letter as it was shown.
-- returns the id, and the delivery_of or nil
local function letter_in(argument)
  local id, delivery = string.match(argument, '^([^\31]*)\31(.*)$')
  return id or argument, delivery
end
