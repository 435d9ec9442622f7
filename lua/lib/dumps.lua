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

-- keep_for(settings, ids): registers these dumps with a shard that is made, before it has a row.
local function keep_for(settings, ids)
  local list, known = {redis.call('HGET', settings, 'dumps') or nil}, {}
  for _, dump in ipairs(dumps_of(settings)) do known[dump.id] = true end
  for _, id in ipairs(ids) do if not known[id] then list[#list + 1] = id .. ':0-0:0' end end
  if #list > 0 then redis.call('HSET', settings, 'dumps', table.concat(list, ',')) end
end
