-- include: key_limit, link_key, progress

-- withdraw(s, job, groups, states): removes the job from what waits for its key, the bucket and the ready counters, for every
-- group that waits for it. Entries that stay in a stream are out of date from now on; claim drops them. states: from
-- group_states.
-- returns the groups it was withdrawn from, and its entry in the shared stream, '' if that is not known
local function withdraw(s, job, groups, states)
  local withdrawn, main, is_delayed = {}, '', nil
  for _, group in ipairs(groups) do
    local p = states[group]
    if p and p.main ~= '' then main = p.main end
    if not p then
      if is_delayed == nil then is_delayed = redis.call('ZREM', s.bucket, string.sub(job.record, 1, 12) .. job.id) == 1 end
      if not is_delayed then redis.call('HINCRBY', s.counts, 'ready:' .. group, -1) end
      withdrawn[#withdrawn + 1] = group
    elseif p.state == 'w' then
      if not release_key(s, group, job.id) then
        local delivery, counter = member(p.sequence, group, job.id), 'waiting:'
        if redis.call('ZREM', s.bucket, delivery) == 0 then
          local key = link_key(s, 'ranked:' .. group) -- perhaps it waits for its turn (ranked.lua)
          redis.call('ZREM', key, delivery)
          counter = 'ready:'
        end
        redis.call('HINCRBY', s.counts, counter .. group, -1)
      end
      withdrawn[#withdrawn + 1] = group
    end
  end
  return withdrawn, main
end
