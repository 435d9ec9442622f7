-- claim_ranked: as claim, in a topic with priorities: jobs whose turn it is come first into the group's stream (ranked.lua).
-- keys: ready, jobs, progress, counts, settings, wake, history, bucket, taken, taken_until, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- keys of the group: own
-- ARGV as those of claim
-- returns as claim does
-- flags: allow-oom
-- include: claim_ready, ranked
local s = shard(KEYS)
local given = math.floor((#ARGV - 7) / 3)
promote(s, ARGV[2], own, math.max(0, ARGV[4] - given))
local reply = claim_ready(s, ARGV)
promote(s, ARGV[2], own, 0) -- what is left must wake others
return reply
