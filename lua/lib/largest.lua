-- The length of the largest record that was ever put into the shard: settings field `largest`. Scripts that read many
-- records take fewer at once if records may be large, because Redis copies each record on its way through Lua.
local BYTES_AT_ONCE = 262144

-- note_largest(settings, largest, bytes): notes that a record of this length was added. largest: the field's value, or
-- nil.
local function note_largest(settings, largest, bytes)
  if bytes > tonumber(largest or 0) then redis.call('HSET', settings, 'largest', bytes) end
end

-- fitting(largest, most, bytes): how many more records a call may read that has already read `bytes` (nil = 0).
-- returns `most`, or fewer if records may be large; at least 1
local function fitting(largest, most, bytes)
  return math.max(1, math.min(most, math.floor((BYTES_AT_ONCE - (bytes or 0)) / math.max(1, tonumber(largest or 0)))))
end

-- is_enough(bytes): returns whether a call that has read this many bytes should read no more
local function is_enough(bytes) return bytes >= BYTES_AT_ONCE end
