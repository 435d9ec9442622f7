-- keep_failures(failures, kept, age, entries, told): keeps what is told of failed attempts (streamdq/store/history/failures.py), each
-- under the id of its row in the history. entries: of the rows; told[i]: of the row entries[i], '' = nothing. kept: about
-- so many stay, as Redis drops whole nodes; age: those that are older in ms go, 0 = none does. It has an end of its own,
-- so nobody has to look after it: the whole key expires once nothing has failed for `age`.
local function keep_failures(failures, kept, age, entries, told)
  if kept == '0' then return end
  local last
  for i, entry in ipairs(entries) do
    if told[i] ~= '' then
      local added = redis.pcall('XADD', failures, 'MAXLEN', '~', kept, entry, 'e', told[i])
      if type(added) == 'table' and added.err then -- it is of another life of the history, whose ids were later
        redis.call('UNLINK', failures)
        redis.call('XADD', failures, entry, 'e', told[i])
      end
      last = entry
    end
  end
  if not last then return end
  if age == '0' then
    redis.call('PERSIST', failures)
  else
    local ms = tonumber(string.match(last, '^%d+'))
    redis.call('XTRIM', failures, 'MINID', '~', string.format('%.0f', math.max(0, ms - tonumber(age))))
    redis.call('PEXPIRE', failures, age)
  end
end
