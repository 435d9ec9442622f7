-- A job's key, and its tickets. In a topic that limits its keys, a job with a key has a ticket for each group:
--   group\31key\31, due_ms (13 digits), sequence, id
-- `group_key` is its beginning, 'group\31key'. A ZSET of tickets has the score 0 for all of them, so the tickets of a group
-- and a key are next to each other, those that are due first at the beginning.
local TICKET = '^([^\31]*\31[^\31]*)\31(%d%d%d%d%d%d%d%d%d%d%d%d%d)(............)(.*)$' -- 13 digits, 12 characters

-- key_in(text, from): reads the key in the rest of a record, which begins at this position of the text (with its ttr).
-- returns nil if the job has none
local function key_in(text, from)
  return string.match(text, '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n\31]*\31([^\n]+)\n', from)
end

-- key_of(record): returns the key of a job, nil if it has none
local function key_of(record) return key_in(record, string.match(record, '^[^\n]*\n[^\n]*\n()')) end

-- format_ticket(group, key, delivery): returns the ticket of a job; delivery = {id=, sequence=, due=}
local function format_ticket(group, key, delivery)
  return group .. '\31' .. key .. '\31' .. string.format('%013.0f', delivery.due) .. delivery.sequence .. delivery.id
end

-- parse_ticket(ticket): returns its group_key, due time, sequence and id
local function parse_ticket(ticket) return string.match(ticket, TICKET) end

-- group_of(group_key): returns the group
local function group_of(group_key) return string.match(group_key, '^[^\31]*') end

-- count_tickets(tickets, group_key): returns how many tickets of the group and key are in this ZSET
local function count_tickets(tickets, group_key)
  return redis.call('ZLEXCOUNT', tickets, '[' .. group_key .. '\31', '(' .. group_key .. '\32')
end

-- first_ticket(tickets, group_key): returns the earliest ticket of the group and key in this ZSET, nil if there is none
local function first_ticket(tickets, group_key)
  local from, to = '[' .. group_key .. '\31', '(' .. group_key .. '\32'
  return redis.call('ZRANGEBYLEX', tickets, from, to, 'LIMIT', 0, 1)[1]
end

-- last_tickets(tickets, group_key, most): returns the latest tickets of the group and key in this ZSET, the last one first
local function last_tickets(tickets, group_key, most)
  local from, to = '[' .. group_key .. '\31', '(' .. group_key .. '\32'
  return redis.call('ZREVRANGEBYLEX', tickets, to, from, 'LIMIT', 0, most)
end

-- next_group_key(tickets, group_key): returns the group_key of the first ticket behind those of group_key; nil if there is
-- none. '' = of the first ticket of all
local function next_group_key(tickets, group_key)
  local after = group_key == '' and '-' or '(' .. group_key .. '\32'
  local ticket = redis.call('ZRANGEBYLEX', tickets, after, '+', 'LIMIT', 0, 1)[1]
  return ticket and (parse_ticket(ticket))
end
