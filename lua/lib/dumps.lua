-- The dumps that are registered with a shard's history: settings field `dumps`, text 'id:mark:written,...'. mark: the
-- last entry that the dump has; written: how many rows had been written up to it.

-- dumps_of(settings): reads that field.
-- returns {{id=, mark=, written=}, ...}
local function dumps_of(settings)
  local out = {}
  for id, mark, written in string.gmatch(redis.call('HGET', settings, 'dumps') or '', '(%w+):(%d+%-%d+):(%d+)') do
    out[#out + 1] = {id = id, mark = mark, written = tonumber(written)}
  end
  return out
end
