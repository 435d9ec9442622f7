-- lease: free, or held by the caller -> held by the caller, who is the active mover. Any other caller is a standby, and
-- learns when it has its turn to call again: where the turns of the others leave room for one, a second after another, so
-- that standbys look at the lease once a second in all. A new one has its first turn at a random place among them, so
-- that those of one host, which start together, don't stand side by side.
-- keys: mover, standbys
-- ARGV[1] name of the caller
-- ARGV[2] lease_ms
-- ARGV[3] place: from 0 to 1, where a new standby has its first turn
-- returns {held, wait_ms, processes}: held 1 = by the caller, for lease_ms from now; 0 = by another process: call again in
-- wait_ms. processes: how many there are, the mover among them
-- runs while its slot moves
-- flags: allow-oom
-- include: clock
local EVERY_MS, MISSED_MS = 1000, 5000 -- between two turns; who is that late for its turn is dead
local name, lease_ms, place = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now, holder = now_ms(''), redis.call('GET', mover)
local turns = redis.call('ZRANGE', standbys, 0, -1, 'WITHSCORES')
local others, mine, before, gap, missed = 0, nil, now, false, false
for i = 1, #turns, 2 do
  local at = tonumber(turns[i + 1])
  if turns[i] == name then mine = at
  elseif at >= now - MISSED_MS then
    others = others + 1
    gap = gap or at > before + 1.5 * EVERY_MS
    if not gap then before = math.max(before, at) end
  else missed = true end
end
if not holder or holder == name then
  -- This first: a Redis at its memory limit refuses a script whose first write adds data, and due jobs must move even then.
  redis.call('PEXPIRE', mover, lease_ms)
  redis.call('SET', mover, name, 'PX', lease_ms)
  redis.call('ZREM', standbys, name)
  return {1, 0, others + 1}
end

local left_ms = redis.call('PTTL', mover)
-- Redis's clock was set back, or somebody took the expiry away.
if left_ms < 0 or left_ms > lease_ms then redis.call('PEXPIRE', mover, lease_ms) end
local turn = before + EVERY_MS
if not mine then turn = math.floor(now + place * (others + 1) * EVERY_MS) end
local early = mine and mine > now + EVERY_MS / 2 and mine <= now + (others + 1) * EVERY_MS
if early then turn = mine end -- a wakeup said that the mover has stopped, but another standby was faster
local keep_ms = (others + 2) * EVERY_MS + 2 * MISSED_MS
local expires = redis.call('PEXPIRE', standbys, keep_ms) == 1 -- before the key gets larger, as above
redis.call('ZADD', standbys, string.format('%.0f', turn), name)
if not expires then redis.call('PEXPIRE', standbys, keep_ms) end
if missed then redis.call('ZREMRANGEBYSCORE', standbys, '-inf', '(' .. string.format('%.0f', now - MISSED_MS)) end
return {0, turn - now, others + 2}
