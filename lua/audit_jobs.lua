-- audit_jobs: reads a page of the shard's jobs, and in which stream each of them should be. It changes nothing.
-- KEYS[1] jobs      HASH
-- KEYS[2] bucket    ZSET
-- KEYS[3] progress  HASH
-- KEYS[4] settings  HASH
-- KEYS[5] lanes     ZSET
-- KEYS[6] keyed     HASH
-- ARGV[1] cursor from the previous page; '0' at first
-- ARGV[2] limit: about how many jobs; fewer if the shard has large jobs
-- returns {cursor, id, group, ...}: the jobs that are ready or running for a group by an entry of ready:GROUP, or of
-- the shared stream if group is ''. cursor '0' = this was the last page
-- runs while its slot moves
-- include: progress, ring, settle, lanes, leaving_groups, largest, scan, stored_format
local jobs, bucket, progress, settings, lanes, keyed = unpack(KEYS)
local topic = redis.call('HMGET', settings, 'groups', 'largest', 'leaving', 'format')
check_format(topic[4])
local groups = names(topic[1])
local cursor, ids, records = scan(jobs, topic[2], ARGV[1], ARGV[2])

local look = {keyed = keyed, lanes = lanes}
local reply, states = {cursor}, states_of({progress = progress}, groups, ids)
local k = {progress = progress, settings = settings, leaving = topic[3]}
local function should_be(id, group)
  reply[#reply + 1] = id
  reply[#reply + 1] = group
end
for i, id in ipairs(ids) do
  local sequence, untouched, alone, shared = string.sub(records[i], 1, 12), 0, false, false
  for j, group in ipairs(groups) do
    local p = parse(states[(i - 1) * #groups + j])
    if not p then
      untouched = untouched + 1
    else
      alone = alone or p.main == '-'
      if p.state == 'r' then
        if p.entry == '' then shared = true else should_be(id, group) end
      elseif p.state == 'w' and not redis.call('ZSCORE', bucket, member(p.sequence, group, id))
          and not is_aside(look, group, id) then
        should_be(id, group)
      end
    end
  end
  -- A group that has not started the job waits for its first delivery, unless the job is detached.
  shared = shared or untouched > 0 and not alone and not redis.call('ZSCORE', bucket, sequence .. id)
    and not (untouched == #groups and is_only_for_leaving(k, id, sequence))
  if shared then should_be(id, '') end
end
return reply
