-- register_topic: merges a topic's settings into the registry that every client reads; null removes a setting.
-- keys: topics, wake
-- ARGV[1] topic
-- ARGV[2] JSON of the settings to change, without groups
-- ARGV[3] JSON {group: {settings}} to add or change; a leaving group is not added before it has left
-- ARGV[4] JSON {group: true} of groups to remove: they start to leave
-- ARGV[5] JSON {group: true} of groups that have left every shard
-- ARGV[6] '' = only if the topic exists; '0' = only if it is new; otherwise only if this is still its version
-- ARGV[7] how many topics there may be; '' for a topic that was lost and is created again
-- returns the topic's settings as JSON, changed or not; nil = there is no such topic; 0 = there are too many topics
-- runs while its slot moves
-- no function: at the memory limit Redis refuses a new topic, by its first write, but not a change of one.
-- include: clock, stored_format
local topic, expected, most = ARGV[1], ARGV[6], ARGV[7]
local stored = redis.call('HGET', topics, topic)
local settings = stored and cjson.decode(stored) or {version = 0, groups = {}}
check_format(settings.format)
if not (expected == '' and stored or tonumber(expected) == settings.version) then return stored end
if most ~= '' and not stored and redis.call('HLEN', topics) >= tonumber(most) then return 0 end
settings.leaving = settings.leaving or {}

local function merge(into, patch)
  for name, value in pairs(patch) do
    if value == cjson.null then into[name] = nil else into[name] = value end
  end
end
local version = settings.version
merge(settings, cjson.decode(ARGV[2]))
for group in pairs(cjson.decode(ARGV[5])) do settings.leaving[group] = nil end
for group, patch in pairs(cjson.decode(ARGV[3])) do
  if not settings.leaving[group] then
    settings.groups[group] = settings.groups[group] or {}
    merge(settings.groups[group], patch)
  end
end
for group in pairs(cjson.decode(ARGV[4])) do
  if settings.groups[group] then settings.groups[group], settings.leaving[group] = nil, true end
end
-- A caller that creates a lost topic again passes the version that shards may still have. The new version is higher
-- than that, and higher than any version of a deleted topic of the same name, or one that was lost with the end of an
-- append-only file; so a process that still acts for that topic is refused.
settings.version = math.max(version + 1, settings.version + 1, now_ms(''))

-- Removal first: a Redis at its memory limit refuses a script's first write if it adds. Who resumes a topic frees memory.
if stored then redis.call('HDEL', topics, '') end
stored = cjson.encode(settings)
redis.call('HSET', topics, topic, stored)
redis.call('XADD', wake, 'MAXLEN', 256, '*', 'topic', topic)
return stored
