-- register_dump: registers a dump with a shard's history, or moves its mark. Rows after the mark are not trimmed.
-- keys: history, counts, settings
-- ARGV[1] the dump's id
-- ARGV[2] mark: the last entry that the dump has, '0-0' = none; '' = unregister the dump
-- ARGV[3] written: how many rows had been written up to that entry
-- ARGV[4] since: the first row ever, as the dump knows it
-- returns {known, since, written, length, last, erased}: known 1 = the dump was registered; since = the first row ever, '' =
-- none yet (it changes if Redis lost the shard); written = how many rows were ever written; length = how many there are
-- now; last = the newest entry or ''; erased = how many rows after the mark erase_rows has removed
-- flags: allow-oom
-- include: dumps, stored_format
local mark, by_then, known, list = ARGV[2], ARGV[3], 0, {}
local erased = 0
local life = redis.call('HMGET', settings, 'history_since', 'format')
check_format(life[2])
local since = life[1] or ''
local written = tonumber(redis.call('HGET', counts, 'history') or 0)
-- A mark in a stream that was lost or restored to an earlier state does not apply to this one: keep all of its rows.
if mark ~= '' and (since ~= ARGV[4] or written < tonumber(by_then)) then mark, by_then = '0-0', '0' end

for _, dump in ipairs(dumps_of(settings)) do
  if dump.id == ARGV[1] then
    known = 1
    if dump.mark == mark then erased = math.max(0, dump.written - tonumber(by_then)) end
  else list[#list + 1] = dump.id .. ':' .. dump.mark .. ':' .. string.format('%.0f', dump.written) end
end
if mark ~= '' then list[#list + 1] = ARGV[1] .. ':' .. mark .. ':' .. string.format('%.0f', by_then + erased) end
-- In this order: a full Redis refuses HSET unless the script has removed something before, and trim_history can free
-- memory only if the mark moves on.
redis.call('HDEL', settings, 'dumps')
if #list > 0 then redis.call('HSET', settings, 'dumps', table.concat(list, ',')) end

local newest = redis.call('XREVRANGE', history, '+', '-', 'COUNT', 1)
return {known, since, written, redis.call('XLEN', history), newest[1] and newest[1][1] or '', erased}
