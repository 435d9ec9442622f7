-- link_key(s, name): the keys of followers and of dependents (followers.lua, waits.lua) are made of that of the settings: a call
-- that named them would be longer in topics that have none as well. They are in the slot of the other keys.
-- returns the shard's key with this name
local function link_key(s, name) return string.sub(s.settings, 1, -9) .. name end
