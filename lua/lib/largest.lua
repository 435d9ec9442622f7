-- The length of the largest record that was ever put into the shard: settings field `largest`. Scripts that read many
-- records take fewer at once where these may be large, for Redis copies each on its way through Lua.
-- note_largest(settings, largest, bytes): `largest` as it stands there, or nil.
-- fitting(largest, most, bytes): how many records may be read in one call that has read `bytes` of others (may be nil);
-- `most`, unless they may be large; one in any case. is_enough(bytes): whether a call should read no more.
local BYTES_AT_ONCE = 262144
local function note_largest(settings, largest, bytes)
  if bytes > tonumber(largest or 0) then redis.call('HSET', settings, 'largest', bytes) end
end
local function fitting(largest, most, bytes)
  return math.max(1, math.min(most, math.floor((BYTES_AT_ONCE - (bytes or 0)) / math.max(1, tonumber(largest or 0)))))
end
local function is_enough(bytes) return bytes >= BYTES_AT_ONCE end
