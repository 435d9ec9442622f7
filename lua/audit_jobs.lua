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
-- include: progress, ring, settle, lanes, leaving_groups, largest, stored_format
local jobs, bucket, progress, settings, lanes, keyed = unpack(KEYS)
local topic = redis.call('HMGET', settings, 'groups', 'largest', 'leaving', 'format')
check_format(topic[4])
local groups, left = names(topic[1]), tonumber(ARGV[2])
local cursor, skip = string.match(ARGV[1], '^(%d+)%+?(%d*)$')
skip = tonumber(skip) or 0
-- HSCAN returns jobs with their bodies. So it is called for a few jobs at a time, until there are enough or they are
-- large enough together.
local step, bytes = fitting(topic[2], left), 0
local ids, sequences = {}, {}
repeat
  local page = redis.call('HSCAN', jobs, cursor, 'COUNT', step)
  local last, following = #page[2], page[1]
  -- HSCAN returns a small hash as a whole, whatever the count: then look at a part of it, and at the rest the next
  -- time.
  if last / 2 - skip > 2 * left then last, following = 2 * (skip + left), cursor .. '+' .. skip + left end
  for i = 2 * skip + 1, last, 2 do
    ids[#ids + 1], sequences[#sequences + 1] = page[2][i], string.sub(page[2][i + 1], 1, 12)
    left, bytes = left - 1, bytes + #page[2][i + 1]
  end
  cursor, skip = following, 0
until cursor == '0' or left <= 0 or bytes + step * (tonumber(topic[2]) or 0) > BYTES_AT_ONCE

local look = {keyed = keyed, lanes = lanes}
local reply, states = {cursor}, states_of({progress = progress}, groups, ids)
local k = {progress = progress, settings = settings, leaving = topic[3]}
local function should_be(id, group)
  reply[#reply + 1] = id
  reply[#reply + 1] = group
end
for i, id in ipairs(ids) do
  local untouched, alone, shared = 0, false, false
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
  shared = shared or untouched > 0 and not alone and not redis.call('ZSCORE', bucket, sequences[i] .. id)
    and not (untouched == #groups and is_only_for_leaving(k, id, sequences[i]))
  if shared then should_be(id, '') end
end
return reply
