-- link_key(s, name): the keys of followers and of dependents (followers.lua, waits.lua) are made of that of the settings: a call
-- that named them would be longer in topics that have none as well. They are in the slot of the other keys.
-- returns the shard's key with this name
local function link_key(s, name) return string.sub(s.settings, 1, -9) .. name end

-- forget_links(s): once no job of the shard waits for others, and none is waited for, notes that: then links cost nothing.
local function forget_links(s)
  local followers, looks = link_key(s, 'followers'), link_key(s, 'dependents')
  if redis.call('EXISTS', followers, looks) == 0 then redis.call('HDEL', s.settings, 'linked') end
end
