-- groups_on(stream): reads what Redis tells of each consumer group on a stream that exists.
-- returns {group = {field = value}}
local function groups_on(stream)
  local found = {}
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local fields = {}
    for i = 1, #info, 2 do fields[info[i]] = info[i + 1] end
    found[fields.name] = fields
  end
  return found
end

-- next_unread(stream, group, most): returns the next entries that the group, which must exist, has not read
local function next_unread(stream, group, most)
  return redis.call('XRANGE', stream, '(' .. groups_on(stream)[group]['last-delivered-id'], '+', 'COUNT', most)
end
