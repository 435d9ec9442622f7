-- Groups that are leaving keep their progress with jobs until leave_group comes to it. Meanwhile the id of a job that has
-- ended may be given to another one, which is none of theirs. Settings field `left_at:GROUP`: numbers_now, as the group
-- began to leave.
-- is_newer(sequence, left_at): whether a record's sequence was made since.
-- is_left(k, id, sequence): the job is detached, and for no other groups than such as are leaving: it is about to end.
-- k = {progress=, settings=, leaving=}, leaving as the settings have it
local function is_newer(sequence, left_at)
  if not left_at then return false end
  local later = string.byte(sequence) == 102 -- f
  return sequence > (later and string.sub(left_at, 13) or string.sub(left_at, 1, 12))
end
local function is_left(k, id, sequence)
  for _, group in ipairs(names(k.leaving)) do
    local p = parse(redis.call('HGET', k.progress, field_of(group, id)))
    if p and p.main == '-' and not is_newer(sequence, redis.call('HGET', k.settings, 'left_at:' .. group)) then
      return true
    end
  end
  return false
end
