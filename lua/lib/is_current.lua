-- is_current(shards, sharded_by_key, named): whether a caller that adds jobs knows how they are spread over shards
-- (lib/layout.lua). shards, sharded_by_key: settings fields. named: the former as the caller knows it; with 'k' behind
-- it, a job is in the shard of its key, where only those look who know that the topic has keys: then it must be marked
-- as sharded_by_key.
-- returns true or false
local function is_current(shards, sharded_by_key, named)
  return named == shards or (shards and sharded_by_key and named == shards .. 'k') or false
end
