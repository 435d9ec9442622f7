-- keep_failures(failures, entries, texts, limits): keeps the messages and tracebacks of failed attempts
-- (streamdq/store/history/failures.py), each under the id of its row in the history. entries: of the rows; texts[i]: of the row
-- entries[i], '' = nothing. limits = {count=, age=}, texts. About `count` stay, as Redis drops whole nodes; those
-- that are older than `age` in ms go, '0' = none does. The key needs no owner: the whole key expires once nothing has failed
-- for `age`.
local function keep_failures(failures, entries, texts, limits)
  if limits.count == '0' then return end
  local last
  for i, entry in ipairs(entries) do
    if texts[i] ~= '' then
      local added = redis.pcall('XADD', failures, 'MAXLEN', '~', limits.count, entry, 'e', texts[i])
      if type(added) == 'table' and added.err then -- it is of another life of the history, whose ids were later
        redis.call('UNLINK', failures)
        redis.call('XADD', failures, entry, 'e', texts[i])
      end
      last = entry
    end
  end
  if not last then return end
  if limits.age == '0' then
    redis.call('PERSIST', failures)
  else
    local ms = tonumber(string.match(last, '^%d+'))
    redis.call('XTRIM', failures, 'MINID', '~', string.format('%.0f', math.max(0, ms - tonumber(limits.age))))
    redis.call('PEXPIRE', failures, limits.age)
  end
end
