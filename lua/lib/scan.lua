-- include: largest

-- scan(jobs, largest, cursor, limit): reads about `limit` jobs of the shard, fewer if it has large ones. largest: settings
-- field. cursor: '0' at first, then what the previous call returned. A job that is there all the time comes at least
-- once.
-- returns the next cursor, '0' = there is no more; the ids, and the records
local function scan(jobs, largest, cursor, limit)
  local left, skip, bytes = tonumber(limit), nil, 0
  cursor, skip = string.match(cursor, '^(%d+)%+?(%d*)$')
  skip = tonumber(skip) or 0
  -- HSCAN returns jobs with their bodies. So it is called for a few jobs at a time, until there are enough or they are
  -- large enough together.
  local step = fitting(largest, left)
  local ids, records = {}, {}
  repeat
    local page = redis.call('HSCAN', jobs, cursor, 'COUNT', step)
    local last, following = #page[2], page[1]
    -- HSCAN returns a small hash as a whole, whatever the count: then look at a part of it, and at the rest the next
    -- time.
    if last / 2 - skip > 2 * left then last, following = 2 * (skip + left), cursor .. '+' .. skip + left end
    for i = 2 * skip + 1, last, 2 do
      ids[#ids + 1], records[#records + 1] = page[2][i], page[2][i + 1]
      left, bytes = left - 1, bytes + #page[2][i + 1]
    end
    cursor, skip = following, 0
  until cursor == '0' or left <= 0 or bytes + step * (tonumber(largest) or 0) > BYTES_AT_ONCE
  return cursor, ids, records
end
