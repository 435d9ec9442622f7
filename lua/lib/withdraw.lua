-- withdraw(k, groups, states, id, sequence): removes the job's tickets, and it from the bucket and the ready counters, for
-- every group that waits for it. Entries that stay in a stream are out of date from now on; claim drops them. states: from
-- group_states.
-- returns the groups it was withdrawn from, and its entry in the shared stream, '' if that is not known
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
      if not release_key(k, group, id) then
        local counter = 'ready:'
        if redis.call('ZREM', k.bucket, member(p.sequence, group, id)) == 1 then counter = 'waiting:' end
        redis.call('HINCRBY', k.counts, counter .. group, -1)
      end
      withdrawn[#withdrawn + 1] = group
    end
  end
  return withdrawn, main
end
