-- include: link_key

-- Priorities. In a topic with them (settings field `prioritized`), a job that is due waits for its turn in a ZSET for each
-- group, and is added to ready:GROUP just before it is claimed. So no stream holds more than a few jobs that a more
-- important one could not overtake. The ZSET's score is rank * APART + due_ms (turns.lua),
-- the rank 0 = high, 1 = normal, 2 = low. As with keys that have limits, such a job is detached: it has progress with each
-- group from then on.

-- ranked_of(s, group): returns the key of the ZSET
local function ranked_of(s, group) return link_key(s, 'ranked:' .. group) end

-- is_ranked(s, group, delivery): returns whether this delivery waits for its turn
local function is_ranked(s, group, delivery)
  local key = ranked_of(s, group)
  return redis.call('ZSCORE', key, delivery) and true or false
end

-- forget_turns(s, group): nothing waits for its turn in the group any more.
local function forget_turns(s, group)
  local key = ranked_of(s, group)
  redis.call('UNLINK', key)
end

-- has_turns(s, group): returns whether jobs wait for their turn in the group
local function has_turns(s, group)
  local key = ranked_of(s, group)
  return redis.call('EXISTS', key) == 1
end
