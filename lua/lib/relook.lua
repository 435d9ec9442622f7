-- relook_all(settings, groups): the idle times of claims that are running are no longer those by which reclaim finds them
-- when their TTR passes, because the TTR was raised or the clock set back. So it looks through all of them once and puts
-- them right. Settings field `relook:GROUP`, text 'ready|own': how far it is with each stream, 0 not begun, 1 begun,
-- 2 through.
-- relook_of(field): {ready, own}, or nil.
-- relooked(state, from, to): the state after a walk from one cursor to the next.
-- note_relook(settings, group, relook): keeps how far it is, and returns whether it is through.
local function relook_all(settings, groups)
  for _, group in ipairs(groups) do redis.call('HSET', settings, 'relook:' .. group, '0|0') end
end
local function relook_of(field)
  local ready, own = string.match(field or '', '^(%d)|(%d)$')
  return ready and {ready, own}
end
local function relooked(state, from, to)
  if state == '0' and from == '0-0' then state = '1' end
  return state == '1' and to == '0-0' and '2' or state
end
local function note_relook(settings, group, relook)
  local through = relook[1] == '2' and relook[2] == '2'
  if through then redis.call('HDEL', settings, 'relook:' .. group)
  else redis.call('HSET', settings, 'relook:' .. group, relook[1] .. '|' .. relook[2]) end
  return through
end
