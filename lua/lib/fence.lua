-- refused(now, width): refuses all claims in ARGV[5..], `width` values each, as their group is gone.
-- returns the script's reply: {now, 1, 2, ...}
local function refused(now, width)
  local reply = {now}
  for i = 1, (#ARGV - 4) / width do reply[i + 1] = i end
  return reply
end

-- fence(k, group, width): acknowledges the claims in ARGV[5..] (main, entry, id, ... `width` values each), and finds
-- out which of them the caller still holds. An entry is pending exactly as long as its claim holds: a take-over
-- acknowledges the old entry and adds a new one, so XACK's reply is the fence. One XACK is enough if no claim was lost,
-- which is nearly always the case; otherwise the progress tells which were lost.
-- k = {ready=, own=, progress=}
-- returns nil = all of them, otherwise {[index in ARGV] = true}
local function fence(k, group, width)
  local args, shared, own = ARGV, {}, {}
  for i = 5, #args, width do
    if args[i + 1] == '' then shared[#shared + 1] = args[i] else own[#own + 1] = args[i + 1] end
  end
  local confirmed = 0
  if #shared > 0 then confirmed = redis.call('XACK', k.ready, group, unpack(shared)) end
  if #own > 0 then confirmed = confirmed + redis.call('XACK', k.own, group, unpack(own)) end
  if confirmed == #shared + #own then return nil end
  local held, seen = {}, {}
  for i = 5, #ARGV, width do
    local p = parse(redis.call('HGET', k.progress, field_of(group, ARGV[i + 2])))
    held[i] = p and p.state == 'r' and p.main == ARGV[i] and p.entry == ARGV[i + 1] and not seen[ARGV[i + 2]] or nil
    if held[i] then seen[ARGV[i + 2]] = true end
  end
  return held
end
