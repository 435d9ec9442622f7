-- enqueue_after: nothing -> waiting, jobs that are due when others have ended. These know of it already (attach); if they
-- have all ended, it is due after its delay.
-- keys: jobs, bucket, ready, progress, counts, settings, history, wake, taken, taken_until, key_tickets, key_waiting,
--   key_admitted, key_unstarted, key_counts, key_paused, key_next_start
-- ARGV[1] now_ms or ''
-- ARGV[2] the topic's number of shards, as lib/is_current.lua takes it
-- ARGV[3] history cap
-- ARGV[4] if a job has the id: 'keep' it; or, if it waits, 'replace' it; 'look' = keep it, and put nothing in if there is none;
-- 'once' = keep it, and put none in that has been here and has ended, as far as those know that wait for it
-- ARGV[5..] per job: id; rest of the record; who waits for it from the start, as in a line of followers.lua from the topic on,
-- '' = nobody; what it waits for, '' for 'look': the value and the fields of waits.lua, with \30 between them:
-- total|done|failed|delay_ms|on_failure|0; per 500 of those that it waits for: they themselves, how they have ended.
-- No id comes twice.
-- returns {status, now_ms, looked, i, record_i, ...} as replace does; status 2 = those of them that are due now are ready
-- include: clock, dependents, drop_job, followers, groups, is_current, key_limit, key_tickets, largest, link_key, removal,
--   requeue, results, sequence, stored_format, waits
local how = ARGV[4]
local topic = redis.call('HMGET', settings, 'shards', 'groups', 'largest', 'leaving', 'format', 'after_finish', 'key_limit',
  'sharded_by_key', 'linked', 'results', 'paused', 'rate')
check_format(topic[5])
if not is_current(topic[1], topic[8], ARGV[2]) then return {0, now_ms(ARGV[1]), 0} end
local s = shard(KEYS)
s.now, s.history_cap, s.groups, s.leaving, s.key_limit = now_ms(ARGV[1]), ARGV[3], names(topic[2]), topic[4], topic[7]
s.ended_as, s.on_removed = 'replaced', after_removal(s, topic[6], topic[9])
s.results, s.waits = results_in(topic[10]), waits(topic[11], topic[12])

local function has_been_here(id, rest)
  local followers = link_key(s, 'followers')
  return redis.call('HEXISTS', followers, id .. '\31' .. string.match(rest, '^[^\n]*\n[^\n]*\n([^\n]*)\n')) == 1
end

-- free_ids(reply): looks at the jobs, and adds to the reply. returns those that are to be put in.
local function free_ids(reply)
  local new, bytes, added = {}, 0, 0
  for i = 5, #ARGV, 4 do
    if is_enough(bytes) or added >= ADMITTED_PER_CALL then break end
    local id, rest = ARGV[i], ARGV[i + 1]
    local held = redis.call('HGET', jobs, id)
    local is_repeated = held and string.sub(held, -#rest) == rest -- with the same nonce
    reply[3] = reply[3] + 1
    if is_repeated or held and (how ~= 'replace' or drop_job(s, {id = id, record = held}, nil) ~= 1) then
      reply[#reply + 1], reply[#reply + 2], bytes = reply[3], held, bytes + #held
    elseif how ~= 'look' and not (how == 'once' and has_been_here(id, rest)) then
      local key, waits_for = s.key_limit and s.key_limit ~= '0' and key_in(rest, 1), {}
      for field in string.gmatch(ARGV[i + 3], '[^\30]+') do waits_for[#waits_for + 1] = field end
      new[#new + 1] = {id = id, rest = rest, own = ARGV[i + 2], waits_for = waits_for, key = key}
      if key then added = added + #s.groups end
    end
  end
  return new
end

-- link(new): notes what they wait for, and who waits for them.
local function link(new)
  local dependencies, looks, followers = link_key(s, 'dependencies'), link_key(s, 'dependents'), link_key(s, 'followers')
  local due, fields, lines = {}, {}, {}
  for n, one in ipairs(new) do
    local nonce = nonce_of(one.record)
    one.member = one.id .. '\31' .. nonce
    due[2 * n - 1], due[2 * n] = string.format('%.0f', s.now + LOOK_AFTER_MS), one.member
    fields[#fields + 1], fields[#fields + 2] = one.member, one.waits_for[1]
    for i = 2, #one.waits_for, 2 do
      local field, k = one.member .. string.format('\31%.0f', i / 2 - 1), #fields
      fields[k + 1], fields[k + 2], fields[k + 3], fields[k + 4] = field, one.waits_for[i], field .. '\31s', one.waits_for[i + 1]
    end
    if one.own ~= '' then
      lines[#lines + 1], lines[#lines + 2] = one.id, followers_text({life = nonce, generation = 0, how = '',
        plus = '', adds = '', list = '0\31' .. one.own .. '\n'})
    end
  end
  redis.call('HSET', settings, 'linked', 1) -- perhaps a replaced job was the last one that had links
  redis.call('ZADD', looks, unpack(due))
  redis.call('HSET', dependencies, unpack(fields))
  if #lines > 0 then redis.call('HSET', followers, unpack(lines)) end
end

-- put_in(new, before): before: how many jobs were ever put in before them.
local function put_in(new, before)
  local records, waiting, longest = {}, {}, 0
  for n, one in ipairs(new) do
    one.order = first_order(before + n)
    one.record = one.order .. NEVER .. string.format('\n%.0f\n', s.now) .. one.rest
    records[2 * n - 1], records[2 * n], longest = one.id, one.record, math.max(longest, #one.record)
    if not one.key then waiting[#waiting + 1], waiting[#waiting + 2] = NEVER, one.order .. one.id end
  end
  link(new)
  redis.call('HSET', jobs, unpack(records))
  redis.call('HINCRBY', counts, 'waiting_for_jobs', #new)
  note_largest(settings, topic[3], longest)
  if #waiting > 0 then redis.call('ZADD', bucket, unpack(waiting)) end
  for _, one in ipairs(new) do
    forget_results(s, one.id)
    if one.key then add(s, s.groups, one.key, {id = one.id, sequence = one.order, due = tonumber(NEVER)}) end
    local total, done, failed = string.match(one.waits_for[1], '^(%d+)|(%d+)|(%d+)')
    if done == total or failed ~= '0' then act_on(s, wait_of(s, one.member), {id = one.id, record = one.record}) end
  end
  start_jobs(s)
end

local reply = {1, s.now, 0}
local new = free_ids(reply)
local before = redis.call('HINCRBY', counts, 'enqueued', #new) - #new -- always written, as in enqueue
if #new > 0 then put_in(new, before) end
if s.made_ready then reply[1] = 2 end
return reply
