-- unregister_topic: removes a topic from the registry, after its shards are gone.
-- keys: topics, wake
-- ARGV[1] topic
-- ARGV[2] version: if the topic has another one, it was changed since, and stays; so does one that isn't to be deleted:
--         versions are times and may run ahead of the clock, so after a loss of data two changes may share one
-- returns 1 = it is gone; 0 = it stays
-- runs while its slot moves
-- flags: allow-oom
-- include: stored_format
local topic, version = ARGV[1], ARGV[2]
local stored = redis.call('HGET', topics, topic)
if not stored then return 1 end
stored = cjson.decode(stored)
check_format(stored.format)
if stored.version ~= tonumber(version) or not stored.deleting then return 0 end
redis.call('HDEL', topics, topic)
redis.call('XADD', wake, 'MAXLEN', 256, '*', 'topic', topic)
return 1
