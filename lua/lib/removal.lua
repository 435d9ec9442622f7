-- include: endings, taken

-- What happens when jobs leave the pool.

-- take_from_end(s, ids): jobs have left the pool; ids that are to stay taken from then on are, from now.
local function take_from_end(s, ids)
  for i, text in ipairs(redis.call('HMGET', s.taken, unpack(ids))) do
    local t = text and parse_taken(text)
    if t and t.until_ms >= AFTER_MS then
      t.until_ms = s.now + t.until_ms - AFTER_MS
      keep_taken(s, ids[i], t)
    end
  end
  expire_taken(s)
end

-- after_removal(s, after_finish, linked): what to do when jobs are removed. after_finish: settings field, which is there as
-- soon as an id is to stay taken from then on. linked: settings field (followers.lua); s.linked from now on.
-- returns a function that is called with their ids; nil = there is nothing to do
local function after_removal(s, after_finish, linked)
  s.linked = linked
  if not after_finish and not linked then return nil end
  return function(ids)
    if linked then jobs_leave(s, ids) end
    if after_finish then take_from_end(s, ids) end
  end
end
