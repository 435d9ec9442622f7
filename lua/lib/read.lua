-- new_entries(stream, group, consumer, most): entries that no consumer of the group has had, {{id, {field, value}}, ...}.
-- They are pending for `consumer` from now on.
local function new_entries(stream, group, consumer, most)
  if most <= 0 then return {} end
  local reply = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', most, 'STREAMS', stream, '>')
  return reply and reply[1] and reply[1][2] or {}
end
