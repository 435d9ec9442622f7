-- The format of stored data: settings field `format` of a shard, and `format` in a topic's JSON in the registry. Data
-- without a format have format 1. docs/upgrading.md describes what users see.
local FORMAT = 1

-- check_format(format): ends the script with an error, before its first write, if a newer version has written the data.
-- format: the stored value; nil or false = none. A value that is no number is not from this version either.
local function check_format(format)
  local number = tonumber(format)
  if format and not (number and number <= FORMAT) then error('NEWERFORMAT ' .. tostring(number or '?'), 0) end
end
