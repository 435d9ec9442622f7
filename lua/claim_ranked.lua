-- claim_ranked: as claim, in a topic with priorities: jobs whose turn it is come first into the group's stream (ranked.lua).
-- keys: ready, jobs, progress, counts, settings, wake, history, bucket, taken, taken_until, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- keys of the group: own
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] consumer
-- ARGV[4] count: how many to claim at most
-- ARGV[5] default TTR in ms, if the topic sets none
-- ARGV[6] history cap
-- ARGV[7] at_once: how many of them the caller starts at once
-- ARGV[8..] entries that a blocking XREADGROUP returned already: stream, entry, member
-- returns as claim does
-- flags: allow-oom
-- include: claim_entries, claim_ready, clock, groups, read, stored_format, turns
local s = shard(KEYS)
s.now, s.group, s.consumer, s.history_cap = now_ms(ARGV[1]), ARGV[2], ARGV[3], ARGV[6]
local claim = open_claim(s, ARGV[5], ARGV[4])
check_format(claim.format)
if not has(s.groups, s.group) then return {-1} end
local read = {unpack(ARGV, 8)}
-- No more than the call claims become the next ones: nothing overtakes them. Those with a pace are never claimed ahead.
local most = math.min(claim.count, claim.is_paced and tonumber(ARGV[7]) or math.huge) - #read / 3
local budget = budget_of(jobs, claim.largest, claim.count + #read / 3)
s.is_room_for = function(delivery) return fits(budget, length_of(budget, {'', {'j', delivery}})) end
for i = 3, #read, 3 do s.is_room_for(read[i]) end
promote(s, s.group, own, math.max(0, most))
s.is_room_for = nil
local reply = claim_ready(s, claim, {at_once = ARGV[7], read = read})
promote(s, s.group, own, 0) -- what is left must wake others
return reply
