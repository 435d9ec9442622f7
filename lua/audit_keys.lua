-- audit_keys: reads a page of the keys for which jobs wait, and then of the admitted jobs, and finds keys whose next job
-- should be admitted, and admitted jobs that have ended. It changes nothing. Those of leaving groups are left to leave_group.
-- keys: settings, key_tickets, key_waiting, key_admitted, key_unstarted, key_paused, progress
-- ARGV[1] where the previous page ended; '' at first
-- ARGV[2] limit: at most so many keys, or admitted jobs
-- returns {last, reason, id, ...}: last = where this page ends: 'w' and a group_key that waits; 'a', 'u' and a ticket of
-- those that are admitted, or have yet to start; '' = it was the last one. reason 'free' = the job waits, though it could be
-- admitted; 'ended' = the job has ended, and is still admitted
-- runs while its slot moves
-- flags: no-writes
-- include: groups, key_limit, key_tickets, progress, stored_format
local topic = redis.call('HMGET', settings, 'key_limit', 'format', 'limit_applied_to', 'leaving')
check_format(topic[2])
local s, leaving = shard(KEYS), names(topic[4])
s.key_limit = topic[1] or '0'
local part, last, most = string.sub(ARGV[1], 1, 1), string.sub(ARGV[1], 2), tonumber(ARGV[2])
local reply = {''}
local function found(reason, id)
  reply[#reply + 1] = reason
  reply[#reply + 1] = id
end

local function look_at_waiting()
  for _ = 1, most do
    last = next_group_key(key_waiting, last)
    if not last then return 'a' end
    -- While a change of the limit is applied, jobs are admitted step by step.
    local is_left = has(leaving, group_of(last))
    if not topic[3] and not is_left and not is_paused(s, last) and not is_full(s, last, count_tickets(key_admitted, last)) then
      local _, _, _, id = parse_ticket(first_ticket(key_waiting, last))
      found('free', id)
    end
  end
  return 'w' .. last
end

-- An admitted job has an attempt that runs or is to come, and its ticket. One that has yet to start is admitted.
local function is_admitted(ticket)
  local group_key, _, _, id = parse_ticket(ticket)
  local field = field_of(group_of(group_key), id)
  local p = parse(redis.call('HGET', progress, field))
  return p and (p.state == 'r' or p.state == 'w') and redis.call('HGET', key_tickets, field) == ticket
end
local function is_listed(ticket) return redis.call('ZSCORE', key_admitted, ticket) end

-- Returns where the page ends; `following` if it was the last one of these tickets.
local function look_at(tickets, is_right, following)
  local page = redis.call('ZRANGEBYLEX', tickets, last == '' and '-' or '(' .. last, '+', 'LIMIT', 0, most)
  for _, ticket in ipairs(page) do
    local _, _, _, id = parse_ticket(ticket)
    if not is_right(ticket) then found('ended', id) end
  end
  return #page == most and part .. page[most] or following
end

if part == 'a' then reply[1] = look_at(key_admitted, is_admitted, 'u')
elseif part == 'u' then reply[1] = look_at(key_unstarted, is_listed, '')
else reply[1] = look_at_waiting() end
return reply
