-- reclaim finds claims by their idle time. After a TTR was raised, or the clock was set back, the idle times of running
-- claims are wrong: reclaim goes through all of them once and corrects them. Settings field `recheck:GROUP`, text
-- 'ready|own': how far it is in each stream: 0 not begun, 1 begun, 2 complete.

-- recheck_all(settings, groups): makes reclaim go through all claims of these groups.
local function recheck_all(settings, groups)
  for _, group in ipairs(groups) do redis.call('HSET', settings, 'recheck:' .. group, '0|0') end
end

-- recheck_in(field): reads the field.
-- returns {ready, own}; nil if there is nothing to do
local function recheck_in(field)
  local ready, own = string.match(field or '', '^(%d)|(%d)$')
  return ready and {ready, own}
end

-- rechecked(state, from, to): notes that a stream was checked from one cursor to the next.
-- returns its new state
local function rechecked(state, from, to)
  if state == '0' and from == '0-0' then state = '1' end
  return state == '1' and to == '0-0' and '2' or state
end

-- note_recheck(settings, group, recheck): stores how far it is, {ready, own}.
-- returns whether both streams are complete
local function note_recheck(settings, group, recheck)
  local through = recheck[1] == '2' and recheck[2] == '2'
  if through then redis.call('HDEL', settings, 'recheck:' .. group)
  else redis.call('HSET', settings, 'recheck:' .. group, recheck[1] .. '|' .. recheck[2]) end
  return through
end
