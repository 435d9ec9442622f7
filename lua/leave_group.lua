-- leave_group: one step of removing a group from a shard, which configure_shard has started: removes the group's
-- progress, and ends jobs that it alone held open. The shard keeps track of how far this is, so any process can
-- continue, even several at once.
-- keys: settings, jobs, bucket, ready, progress, counts, taken, taken_until, key_tickets, key_waiting, key_admitted,
--   key_unstarted, key_counts
-- ARGV[1] now_ms or ''
-- ARGV[2] group
-- ARGV[3] limit: about how many fields of progress to look at; fewer if records are large
-- returns 1 = there is more to do; 0 = the group is gone, or is not leaving
-- flags: allow-oom
-- include: clock, end_in_group, ended_in, endings, followers, groups, key_limit, largest, leaving_groups, progress, removal,
--   stored_format, waits
local group, bytes = ARGV[2], 0
local topic = redis.call('HMGET', settings, 'groups', 'leaving', 'left:' .. group, 'format', 'after_finish', 'linked')
check_format(topic[4])
local s = shard(KEYS)
s.now, s.groups = now_ms(ARGV[1]), names(topic[1])
s.on_removed, s.ended_as = after_removal(s, topic[5], topic[6]), 'left'
local leaving = names(topic[2])
if not has(leaving, group) then return 0 end

-- A job is open until the last group that it concerns has ended it.
local function is_open(id, alone)
  for _, value in ipairs((states_of(s, {id}))) do
    local p = parse(value)
    if p and p.state ~= 'x' or not p and not alone then return true end
  end
  return false
end
-- A new job may have the id by now: what a leaving group still has of it is none of the new one's.
local left_at = {}
for _, one in ipairs(leaving) do left_at[one] = redis.call('HGET', settings, 'left_at:' .. one) end
local function is_other(record, one) return record and made_since(string.sub(record, 1, 12), left_at[one]) end
-- Of those that leave, one may have done the job; once it has left, only its followers' entry tells so.
local everyone = {progress = progress, groups = names(table.concat({topic[1], topic[2]}, ','))}
local function note_if_done(id)
  local f = waited_for(s, id)
  if not f or f.plus ~= '' then return end
  for one, note in pairs(ended_in(everyone, id)) do
    if note == '' and not is_other(redis.call('HGET', jobs, id), one) then f.plus = '+' end
  end
  if f.plus ~= '' then keep_followers(s, id, f) end
end
-- A detached job without a record was lost, or other groups have ended it since this one began to leave, and then it is
-- no longer counted as detached. It still is, if more jobs are counted than there are.
local function is_counted()
  return tonumber(redis.call('HGET', counts, 'detached') or 0) > redis.call('HLEN', jobs)
end
local function end_unless_open(id, main, whose)
  if is_open(id, main == '-') then return end
  local record = redis.call('HGET', jobs, id)
  if is_other(record, whose) then return end
  bytes = bytes + #(record or '')
  if not record and main == '-' and not is_counted() then main = '' end
  forget(s, id, main)
  if record then stop_waiting_for(s, {id = id, record = record}) end
end

-- A cursor is only valid for the Redis process that returned it.
local info = redis.pcall('INFO', 'server') -- fakeredis does not have INFO in a script
local run = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
local cursor = string.match(topic[3] or '', '^' .. run .. ':(%d+)$') or '0'
local page = redis.call('HSCAN', progress, cursor, 'COUNT', ARGV[3])
for i = 1, #page[2], 2 do
  local field, p = page[2][i], parse(page[2][i + 1])
  local whose, id = string.match(field, '^([^\31]*)\31(.*)$')
  if whose == group then
    note_if_done(id)
    redis.call('HDEL', progress, field)
    drop_ticket(s, group, id)
    if p.state == 'w' and redis.call('ZREM', bucket, member(p.sequence, group, id)) == 1 then
      redis.call('HINCRBY', counts, 'waiting:' .. group, -1)
    end
    if p.state == 'd' then job_goes_on(s, id) end -- or it ends, and then that is reported
    end_unless_open(id, p.main, group)
  elseif p.state == 'x' then
    note_if_done(id)
    end_unless_open(id, p.main, whose)
  end
  if is_enough(bytes) then return 1 end -- the page is read again; fields that were handled are gone from it
end

if page[1] ~= '0' then
  redis.call('HSET', settings, 'left:' .. group, run .. ':' .. page[1])
  return 1
end
take_out(leaving, group)
redis.call('HDEL', counts, 'waiting:' .. group, 'waiting_for_key:' .. group)
redis.call('HDEL', settings, 'left:' .. group, 'left_at:' .. group, 'leaving')
if #leaving > 0 then redis.call('HSET', settings, 'leaving', table.concat(leaving, ',')) end
return 0
