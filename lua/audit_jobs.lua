-- audit_jobs: reads a page of the shard's jobs, and in which stream each of them should be. It changes nothing.
-- KEYS[1] jobs      HASH
-- KEYS[2] bucket    ZSET
-- KEYS[3] progress  HASH
-- KEYS[4] settings  HASH
-- KEYS[5] lanes     ZSET
-- KEYS[6] keyed     HASH
-- ARGV[1] cursor from the previous page; '0' at first
-- ARGV[2] limit: about how many jobs; fewer if the shard has large jobs
-- returns {cursor, {id, group, entry, ...}, {id, key, ...}}: the jobs that are ready or running for a group by an entry of
-- ready:GROUP, or of the shared stream if group is '': the entry's id if one runs, else its value; and all jobs of the page
-- with their keys, '' = it has none. cursor '0' = this was the last page
-- runs while its slot moves
-- include: progress, ring, settle, lanes, leaving_groups, largest, scan, stored_format
local jobs, bucket, progress, settings, lanes, keyed = unpack(KEYS)
local topic = redis.call('HMGET', settings, 'groups', 'largest', 'leaving', 'format')
check_format(topic[4])
local groups = names(topic[1])
local cursor, ids, records = scan(jobs, topic[2], ARGV[1], ARGV[2])

local look = {keyed = keyed, lanes = lanes}
local in_streams, all, states = {}, {}, states_of({progress = progress}, groups, ids)
local k = {progress = progress, settings = settings, leaving = topic[3]}
local function should_be(id, group, entry)
  for _, text in ipairs({id, group, entry}) do in_streams[#in_streams + 1] = text end
end
for i, id in ipairs(ids) do
  all[2 * i - 1], all[2 * i] = id, key_of(records[i]) or ''
  local sequence, untouched, alone = string.sub(records[i], 1, 12), 0, false
  for j, group in ipairs(groups) do
    local p = parse(states[(i - 1) * #groups + j])
    if not p then
      untouched = untouched + 1
    else
      alone = alone or p.main == '-'
      if p.state == 'r' then
        if p.entry == '' then should_be(id, '', p.main) else should_be(id, group, p.entry) end
      elseif p.state == 'w' and not redis.call('ZSCORE', bucket, member(p.sequence, group, id))
          and not is_aside(look, group, id) then
        should_be(id, group, member(p.sequence, group, id))
      end
    end
  end
  -- A group that has not started the job waits for its first delivery, unless the job is detached.
  if untouched > 0 and not alone and not redis.call('ZSCORE', bucket, sequence .. id)
    and not (untouched == #groups and is_only_for_leaving(k, id, sequence)) then
    should_be(id, '', sequence .. id)
  end
end
return {cursor, in_streams, all}
