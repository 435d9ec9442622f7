-- What became of a job, for those that wait for it: a STRING of the shard, `result:GROUP:ID`, which expires; text
--   ended_ms|outcome|payload
-- outcome  done, dead, cancelled, expired, or error = the job is done, and its result could not be kept
-- payload  done: the stored result, '' = none was sent; dead: reason|error; error: the error; otherwise ''
-- The key is made here, of that of the settings: only the script knows which jobs end, and a call that named one more key
-- would cost topics that keep no results as well. It is in the slot of the other keys.

-- results_in(text): reads the settings field `results`, 'GROUP=ms,GROUP=ms': for how long each group's results are kept; 0 = no
-- longer, but there may be some.
-- returns {group = ms}; nil = no group of the topic keeps any, nor has
local function results_in(text)
  if not text then return nil end
  local results = {}
  for group, ms in string.gmatch(text, '([^=,]+)=(%d+)') do results[group] = ms end
  return results
end

-- with_former(before, text): the groups that kept results before, and no longer do, stay in the field with 0: a new job must not
-- get the result of an earlier one, should they keep some again.
-- returns the field's new text
local function with_former(before, text)
  local now, all = results_in(text), {text ~= '' and text or nil}
  for group in pairs(results_in(before) or {}) do
    if not now[group] then all[#all + 1] = group .. '=0' end
  end
  return table.concat(all, ',')
end

-- longest_kept(text): reads the settings field `results`, of a topic that is being deleted.
-- returns for how many ms there may still be results; a year, the most, if a group no longer keeps any
local function longest_kept(text)
  local longest = 0
  for _, ms in pairs(results_in(text)) do longest = math.max(longest, ms == '0' and 31622400000 or tonumber(ms)) end
  return longest
end

-- result_key(s, group, id): returns the key of a result
local function result_key(s, group, id)
  return string.sub(s.settings, 1, -9) .. 'result:' .. group .. ':' .. id
end

-- keep_result(s, job, result): job.group has ended job.id: keeps how, if it keeps results. result: 'outcome|payload'.
local function keep_result(s, job, result)
  local ms = s.results and s.results[job.group]
  if not ms or ms == '0' then return end
  local key = result_key(s, job.group, job.id)
  redis.call('SET', key, string.format('%.0f|', s.now) .. result, 'PX', ms)
end

local HELD_MS = 86400000 -- more than the mover takes to deliver an ending again

-- is_result_of(key, ended_by): returns whether the result is of a job that had ended at that time; a later one may have its id now
local function is_result_of(key, ended_by)
  local at = string.match(redis.call('GETRANGE', key, 0, 20), '^(%d+)|')
  return at and tonumber(at) <= ended_by
end

-- hold_results(s, id, ended_by): others wait for the job: its results are kept until these have ended, and from then on for as
-- long as asked (release_results). Called again and again, so that none is kept for ever if that is lost.
local function hold_results(s, id, ended_by)
  for group, ms in pairs(s.results or {}) do
    local key = result_key(s, group, id)
    local left = ms ~= '0' and redis.call('PTTL', key) or 0
    if left > 0 and left < ms + HELD_MS / 2 and is_result_of(key, ended_by) then
      redis.call('PEXPIRE', key, string.format('%.0f', ms + HELD_MS))
    end
  end
end

-- release_results(s, id, ended_by): those that waited have ended.
local function release_results(s, id, ended_by)
  for group, ms in pairs(s.results or {}) do
    local key = result_key(s, group, id)
    if ms ~= '0' and redis.call('PTTL', key) > tonumber(ms) and is_result_of(key, ended_by) then
      redis.call('PEXPIRE', key, ms)
    end
  end
end

-- forget_results(s, id): a new job has got the id: what became of an earlier one is not its result.
local function forget_results(s, id)
  for group in pairs(s.results or {}) do
    local key = result_key(s, group, id)
    redis.call('DEL', key)
  end
end

-- forget_result(s, job): job.group goes on with job.id, which it had given up.
local function forget_result(s, job)
  if not (s.results and s.results[job.group]) then return end
  local key = result_key(s, job.group, job.id)
  redis.call('DEL', key)
end
