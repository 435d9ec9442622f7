-- reclaim finds claims by their idle time. After a TTR was raised, or the clock was set back, the idle times of running
-- claims are wrong: reclaim goes through all of them once and corrects them. Settings field `relook:GROUP`, text
-- 'ready|own': how far it is in each stream: 0 not begun, 1 begun, 2 complete.

-- relook_all(settings, groups): makes reclaim go through all claims of these groups.
local function relook_all(settings, groups)
  for _, group in ipairs(groups) do redis.call('HSET', settings, 'relook:' .. group, '0|0') end
end

-- relook_of(field): reads the field.
-- returns {ready, own}; nil if there is nothing to do
local function relook_of(field)
  local ready, own = string.match(field or '', '^(%d)|(%d)$')
  return ready and {ready, own}
end

-- relooked(state, from, to): notes that a stream was checked from one cursor to the next.
-- returns its new state
local function relooked(state, from, to)
  if state == '0' and from == '0-0' then state = '1' end
  return state == '1' and to == '0-0' and '2' or state
end

-- note_relook(settings, group, relook): stores how far it is, {ready, own}.
-- returns whether both streams are complete
local function note_relook(settings, group, relook)
  local through = relook[1] == '2' and relook[2] == '2'
  if through then redis.call('HDEL', settings, 'relook:' .. group)
  else redis.call('HSET', settings, 'relook:' .. group, relook[1] .. '|' .. relook[2]) end
  return through
end
