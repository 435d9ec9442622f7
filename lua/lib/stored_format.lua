-- The format of what Redis stores: settings field `format` of a shard, and `format` in the registry's JSON of a topic. Data
-- without one have format 1: versions up to this one write none. docs/upgrading.md tells what users see of it.
local FORMAT = 1

-- check_format(format): ends the script with an error, before its first write, if a newer version has written the data.
-- format: what is stored, nil or false = nothing. What is no number at all is not from this version either.
local function check_format(format)
  local number = tonumber(format)
  if format and not (number and number <= FORMAT) then error('NEWERFORMAT ' .. tostring(number or '?'), 0) end
end
