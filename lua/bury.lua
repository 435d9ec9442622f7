-- bury: running -> dead, a batch of one group's claims: no step is left, or the job can't succeed.
-- KEYS[1] ready        STREAM
-- KEYS[2] ready:GROUP  STREAM
-- KEYS[3] dead:GROUP   ZSET    id -> buried at, ms
-- KEYS[4] progress     HASH
-- KEYS[5] counts       HASH
-- KEYS[6] settings     HASH
-- KEYS[7] history      STREAM
-- KEYS[8] wake         STREAM
-- KEYS[9] bucket       ZSET
-- KEYS[10] lanes  ZSET
-- KEYS[11] fronts  ZSET
-- KEYS[12] keyed  HASH
-- KEYS[13] crowds  ZSET
-- KEYS[14] failures    STREAM
-- KEYS[15] receipts    ZSET    only given if the caller may lose the reply and ask again
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] history cap
-- ARGV[4] generation of the group, as claim returned it
-- ARGV[5] consumer that claimed them
-- ARGV[6] how many failures are kept, 0 = none
-- ARGV[7] for how long, in ms; 0 = no limit
-- ARGV[8..] per claim: main, entry (as claimed), id, history row, reason, error, failure ('' = none to keep)
-- returns {now_ms, i, ...}: i (from 1) are the refused claims.
-- include: clock, progress, ring, settle, fence, lanes, bury_job, trim_ready, history, failures, receipt, stored_format
local ready, own, dead, progress, counts, settings, history, wake, bucket, lanes, fronts, keyed, crowds, failures, receipts = unpack(KEYS)
local now, group, cap = now_ms(ARGV[1]), ARGV[2], ARGV[3]
local k = {ready = ready, own = own, dead = dead, progress = progress, counts = counts, wake = wake, bucket = bucket,
  lanes = lanes, fronts = fronts, keyed = keyed, crowds = crowds}
local topic = redis.call('HMGET', settings, 'groups', 'shared', 'overtaken', 'generation:' .. group, 'format',
  'key_limit')
check_format(topic[5])
k.key_limit = topic[6]
local groups = served(topic[1], group, topic[4], ARGV[4])
if not groups then return refused(now, 7, 8) end
local overtaken = tonumber(topic[3] or 0)
local now_text, reply, rows, told = '\31' .. string.format('%.0f', now), {now}, {}, {}

local lost, buried = fence(k, group, ARGV[5], 7, 8), 0
for i = 8, #ARGV, 7 do
  if lost and lost[i] then
    reply[#reply + 1] = (i - 1) / 7
  else
    buried = buried + 1
    local main, entry, id = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local p = parse(redis.call('HGET', progress, field_of(group, id)))
    if entry == '' then p.main = detach(k, groups, main) else redis.call('XDEL', own, entry) end
    bury_job(k, group, id, p, now, ARGV[i + 4], ARGV[i + 5])
    free_place(k, group, id, now)
    rows[#rows + 1] = ARGV[i + 3] .. now_text
    told[#rows] = ARGV[i + 6]
    if receipts then receipt(receipts, group, main, entry, 'dead', now) end
  end
end
if not topic[2] and overtaken > 0 then trim_ready(k, settings, group, {}, overtaken) end
if buried > 0 then redis.call('HINCRBY', counts, 'running:' .. group, -buried) end
local entries = {}
remember(history, counts, settings, cap, rows, nil, entries)
keep_failures(failures, ARGV[6], ARGV[7], entries, told)
return reply
