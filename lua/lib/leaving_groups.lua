-- include: groups, progress

-- A leaving group keeps its progress until leave_group removes it. Meanwhile a new job may get the id of one that has
-- ended; the new job does not concern the group. Settings field `left_at:GROUP`: numbers_now when the group began to
-- leave.

-- made_since(sequence, left_at): returns whether this sequence was made after left_at; false if left_at is nil
local function made_since(sequence, left_at)
  if not left_at then return false end
  local later = string.byte(sequence) == 102 -- f
  return sequence > (later and string.sub(left_at, 13) or string.sub(left_at, 1, 12))
end

-- is_only_for_leaving(s, job): whether the job, with which no group of the topic has progress, concerns only leaving groups:
-- then it is detached and about to end.
-- returns true or false
local function is_only_for_leaving(s, job)
  for _, group in ipairs(names(s.leaving)) do
    local p = parse(redis.call('HGET', s.progress, field_of(group, job.id)))
    if p and p.main == '-' and not made_since(string.sub(job.record, 1, 12), redis.call('HGET', s.settings, 'left_at:' .. group)) then
      return true
    end
  end
  return false
end
