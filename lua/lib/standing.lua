-- standing(k, groups, id, sequence): where one job, whose record has that sequence, stands with each group that it is for.
-- Returns the groups concerned, {[group] = progress}, and whether an attempt is running. A group without progress has
-- not started the job. Once a job is detached it concerns those groups alone that have progress with it: none, if they are
-- leaving. k = {progress=, settings=, leaving=}
local function standing(k, groups, id, sequence)
  local states, running, alone = {}, false, {}
  local values = states_of(k, groups, {id})
  for i, group in ipairs(groups) do
    local p = parse(values[i])
    if p then
      states[group] = p
      running = running or p.state == 'r'
      if p.main == '-' then alone[#alone + 1] = group end
    end
  end
  if next(states) == nil and is_left(k, id, sequence) then return {}, states, false end
  return #alone > 0 and alone or groups, states, running
end
-- withdraw(k, groups, states, id, sequence): takes the job out of the bucket and out of the ready counts for every
-- group that waits for it. Entries left in a stream are out of date from now on; claim drops them.
-- Returns the groups it was withdrawn from, and the entry in the shared stream when it is known ('' else).
local function withdraw(k, groups, states, id, sequence)
  local withdrawn, main, delayed = {}, '', nil
  for _, group in ipairs(groups) do
    local p = states[group]
    if p and p.main ~= '' then main = p.main end
    if not p then
      if delayed == nil then delayed = redis.call('ZREM', k.bucket, sequence .. id) == 1 end
      if not delayed then redis.call('HINCRBY', k.counts, 'ready:' .. group, -1) end
      withdrawn[#withdrawn + 1] = group
    elseif p.state == 'w' then
      local counter = 'ready:'
      if redis.call('ZREM', k.bucket, member(p.sequence, group, id)) == 1 then counter = 'waiting:' end
      redis.call('HINCRBY', k.counts, counter .. group, -1)
      withdrawn[#withdrawn + 1] = group
    end
  end
  return withdrawn, main
end
