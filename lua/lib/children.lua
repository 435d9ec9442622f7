-- include: endings, followers, link_key

-- Children: jobs that the handler of another one has added to its flow (followers.lua).

-- children_field(id, life): returns the field of `followers` with the children of a job that are to be put in
local function children_field(id, life) return id .. '\31' .. life .. '\31+' end

-- add_children(s, id, text): the job is about to be done, and its handler has added these, which the mover puts in
-- (link_children). If nobody waits for the job any more, its flow is forgotten, and so are they.
local function add_children(s, id, text)
  local key, f = link_key(s, 'followers'), waited_for(s, id)
  if not f then return end
  local field = children_field(id, f.life)
  f.adds = '*'
  redis.call('HSET', key, field, (redis.call('HGET', key, field) or '') .. text)
  keep_followers(s, id, f)
end

-- is_closed(w): returns whether it is the own job of a flow that was cancelled, and takes no children any more
local function is_closed(w) return string.sub(w.gate, -1) == '!' end
