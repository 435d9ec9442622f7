-- register: a topic's settings, merged into the registry that every client reads; null takes a setting away.
-- KEYS[1] topics    HASH    topic -> JSON of its settings
-- KEYS[2] wake      STREAM  of the namespace: tells the mover
-- ARGV[1] topic
-- ARGV[2] JSON of the settings to change, without groups
-- ARGV[3] JSON {group: {settings}} to add or change
-- ARGV[4] JSON {group: true} of groups to remove
-- ARGV[5] '1': only if the topic is new
-- returns the topic's settings as JSON
local topics, wake, topic = KEYS[1], KEYS[2], ARGV[1]
local stored = redis.call('HGET', topics, topic)
if stored and ARGV[5] == '1' then return stored end
local settings = stored and cjson.decode(stored) or {version = 0, groups = {}}

local function merge(into, patch)
  for name, value in pairs(patch) do
    if value == cjson.null then into[name] = nil else into[name] = value end
  end
end
local version = settings.version
merge(settings, cjson.decode(ARGV[2]))
for group, patch in pairs(cjson.decode(ARGV[3])) do
  settings.groups[group] = settings.groups[group] or {}
  merge(settings.groups[group], patch)
end
for group in pairs(cjson.decode(ARGV[4])) do settings.groups[group] = nil end
-- A caller that makes a lost topic again names the version that shards may still have.
settings.version = math.max(version, settings.version) + 1

stored = cjson.encode(settings)
redis.call('HSET', topics, topic, stored)
redis.call('XADD', wake, 'MAXLEN', 1, '*', 'topic', topic)
return stored
