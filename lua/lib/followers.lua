-- include: link_key

-- Jobs that others wait for (`after`). HASH `followers`, id of the job -> text; its first line is
--   life|generation|how, and |away
-- and each further line one that waits for it, in fields separated by \31: attached_ms, topic, shard, index, nonce, id
-- attached_ms 0 = the follower was there before the job could start; else it may have to come yet; 0+ = it is a child of the
--             job, and those of the other followers wait for it, too, which are named behind that: \30NONCE\29ID each; and its
--             flow's own job
-- life        of the job when the first follower came (life_of); of a job that had ended before, and is known by its kept
--             results: '=' and when it ended
-- generation  when the job last ended, went on or left the pool, ms; always rising; 0 = it has not ended yet
-- how         '' = it goes on; dead = a group has given it up, and a kick lets it go on; done; or it has failed permanently:
--             cancelled, replaced, expired, purged, left (with its groups), lost; archived, unless it is restored.
--             A '+' behind it: a group has done the job, and may leave the topic, or has left it. A '*' behind that: its
--             handler has added jobs to its flow, its children, which are to be put in (ID\31LIFE\31+ has them); '&': they are
-- away        groups in whose archive it is, behind a '|', with commas; it has to come back for each. None: without the '|'
-- index       of the job among those that the follower waits for, from 0; +LIFE if it is a child of one of them (waits.lua)
-- nonce, id   of the follower
-- When the job leaves the pool, its field becomes ID\31LIFE: a later job with the same id has nothing to do with it.
-- ZSET `endings`: fields of jobs that have news -> when their followers are notified (again), ms. An ending stays until all
-- its followers have ended: what a failover undoes there is reported again.
-- The settings field `linked` says that there may be followers or dependents (dependents.lua). Otherwise
-- nothing here costs a command.

-- followers_in(text): returns {life=, generation=, how=, plus=, adds=, away=, list=}; adds: '*', '&' or ''; list: the lines of
-- the followers, each with its end
local function followers_in(text)
  local life, generation, how, plus, adds, away, list = string.match(text, '^([^|]*)|(%d+)|(%a*)(%+?)([*&]?)|?([^\n]*)\n(.*)$')
  return {life = life, generation = tonumber(generation), how = how, plus = plus, adds = adds, away = away, list = list}
end

-- followers_text(f): returns what followers_in reads; f.away nil = ''
local function followers_text(f)
  local away = (f.away or '') ~= '' and '|' .. f.away or ''
  return string.format('%s|%.0f|%s%s%s%s\n', f.life, f.generation, f.how, f.plus, f.adds, away) .. f.list
end

-- keep_followers(s, field, f): writes what followers_in reads.
local function keep_followers(s, field, f)
  local key = link_key(s, 'followers')
  redis.call('HSET', key, field, followers_text(f))
end

-- is_in_flow(s, id): returns whether a flow's own job waits for the job
local function is_in_flow(s, id)
  local key = link_key(s, 'followers')
  local text = redis.call('HGET', key, id)
  return text and string.find(text, '\31streamdq.flows\31', 1, true) and true or false
end

-- ended_by(s, field, f): returns by when the job has ended, ms; now, as long as it is in the pool
local function ended_by(s, field, f) return string.find(field, '\31', 1, true) and f.generation or s.now end
