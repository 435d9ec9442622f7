-- claim: ready -> running, for one consumer of one group. Reads the streams, loads the records and drops entries that
-- are out of date (cancelled, rescheduled, replaced, expired) in one round trip.
-- keys: ready, jobs, progress, counts, settings, wake, history, bucket, taken, taken_until, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- keys of the group: own
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] consumer
-- ARGV[4] count: how many to claim at most; entries in ARGV[8..] beyond that are handed back
-- ARGV[5] default TTR in ms, if the topic sets none
-- ARGV[6] history cap
-- ARGV[7] at_once: how many of them the caller starts at once; the others are claimed ahead (progress.lua). A job that
-- was lost with a consumer is not claimed ahead: it may be what kills consumers, and that must be counted. In a topic with
-- a pace of keys, no job that has progress is: its claim is taken for its start.
-- ARGV[8..] entries that a blocking XREADGROUP returned already: stream ('m' ready, 'g' ready:GROUP), entry, member;
-- those that it has claimed, but got no reply, it claims again, unless they may not start any more
-- returns {status, now_ms, ttr_ms, unread, {claim, ...}, {id, ...}, {record, ...}, expired, generation, refused,
-- unlooked}: status 1, or 0 = the topic is paused (nothing read); or {-1}: there is no such group,
-- or the caller has old settings of the topic. claim: '' = none, the
-- delivery was out of date; for a first attempt the entry in the shared stream; otherwise
-- 'main|entry|attempt|step|crashes|due_ms'. main: entry in the shared stream or '-'. attempt: as in the progress.
-- due_ms: '' = see the record. unread: jobs still ready for this group. expired: how many were given up as too late.
-- generation: of the group. refused: jobs beyond at_once that are not claimed ahead. unlooked: how many of the last entries
-- in ARGV[8..] were left for another call, because records are large, or the topic has a pace of keys.
-- flags: allow-oom
-- include: claim_entries, claim_ready, clock, groups, ranked, stored_format
local s = shard(KEYS)
s.now, s.group, s.consumer, s.history_cap = now_ms(ARGV[1]), ARGV[2], ARGV[3], ARGV[6]
local claim = open_claim(s, ARGV[5], ARGV[4])
check_format(claim.format)
if not has(s.groups, s.group) then return {-1} end
local reply = claim_ready(s, claim, {at_once = ARGV[7], read = {unpack(ARGV, 8)}})
-- It does not know that the topic has priorities, and gets no job that waits for its turn.
if s.waits and #ARGV == 7 and #reply[6] == 0 and has_turns(s, s.group) then return {-1} end
return reply
