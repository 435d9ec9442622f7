-- include: dependents, link_key, waits

-- What a job that waits for others hears of them. `w` is from wait_of (waits.lua).

-- places_of(s, w, name): reads where those are that were added and whose lives begin like this one: '+LIFE'.
-- returns {text=, is_changed=}
local function places_of(s, w, name)
  local start = string.sub(name, 1, 3)
  w.places = w.places or {}
  if not w.places[start] then
    local key = link_key(s, 'dependencies')
    w.places[start] = {text = redis.call('HGET', key, w.member .. '\31' .. start) or ''}
  end
  return w.places[start]
end

-- index_of(s, w, name): returns the index of the one that was added with this life, '+LIFE'; nil = none was
local function index_of(s, w, name)
  local text = places_of(s, w, name).text
  local _, last = string.find(text, name .. '=', 1, true)
  return last and tonumber(string.match(text, '^%d+', last + 1))
end

-- add_to(s, w, lines): it also waits for these from now on, if it does not yet. lines: as in waits.lua, each with a + before its
-- life; at least one.
local function add_to(s, w, lines)
  local key, looks, parts, fields = link_key(s, 'dependencies'), link_key(s, 'dependents'), {}, {}
  for line in string.gmatch(lines, '[^\n]+') do
    local name = string.match(line, '^[^\31]*\31[^\31]*\31([^\31]*)')
    if not index_of(s, w, name) then
      local n, places = math.floor(w.total / PER_FIELD), places_of(s, w, name)
      local states, field = states_at(s, w, n), w.member .. '\31' .. n
      parts[field] = parts[field] or redis.call('HGET', key, field)
      parts[field] = parts[field] and parts[field] .. '\n' .. line or line
      states.letters[#states.letters + 1], states.is_changed = GOES_ON, true
      places.text, places.is_changed = places.text .. string.format('%s=%.0f;', name, w.total), true
      w.total, w.added, w.is_changed = w.total + 1, '+', true
    end
  end
  for field, text in pairs(parts) do fields[#fields + 1], fields[#fields + 2] = field, text end
  for start, places in pairs(w.places) do
    if places.is_changed then fields[#fields + 1], fields[#fields + 2] = w.member .. '\31' .. start, places.text end
  end
  if #fields == 0 then return end
  redis.call('HSET', key, unpack(fields))
  redis.call('ZADD', looks, 'LT', string.format('%.0f', s.now + LOOK_AFTER_MS), w.member)
end

-- hear(s, w, news): one of those that it waits for has ended, or goes on. news = {index=, how=, generation=, seen=}. What is older
-- than what is known is ignored, and what is done stays done. seen: the generation that was known when its shard was asked,
-- because that shard may have lost what is known here; nil = it unblocked by itself. index: text, as in followers.lua.
local function hear(s, w, news)
  local index
  if string.byte(news.index) == 43 then index = index_of(s, w, news.index) else index = tonumber(news.index) end -- +
  if not index then return end
  local states = states_at(s, w, math.floor(index / PER_FIELD))
  local i = index % PER_FIELD + 1
  local before, known = states.letters[i], states.generations[i] or 0
  local letter = string.byte(ENDINGS[news.how] or MORE_ENDINGS[news.how] or '')
  if not before or before == DONE or not letter then return end
  if news.generation <= known and known ~= news.seen or letter == before and news.generation == known then return end
  w.failed = w.failed + failures_in(letter) - failures_in(before)
  if letter == DONE then w.done = w.done + 1 end
  states.letters[i] = letter
  states.generations[i] = letter ~= DONE and news.generation or nil
  states.is_changed, w.is_changed = true, true
end
