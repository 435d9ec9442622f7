-- receipt(s, main, entry, ended): remembers for ten minutes that this claim of s.group ended its attempt, and how (ended:
-- '' = finished), so that a caller that lost the reply can ask again. Each new receipt removes some old ones; there are
-- 10 000 at most.
local function receipt(s, main, entry, ended)
  local claim = s.group .. '|' .. main .. '|' .. entry
  redis.call('ZADD', s.receipts, s.now, ended == '' and claim or claim .. '|' .. ended)
  local old = redis.call('ZRANGEBYSCORE', s.receipts, '-inf', s.now - 600000, 'LIMIT', 0, 10)
  if #old > 0 then redis.call('ZREM', s.receipts, unpack(old)) end
  redis.call('ZREMRANGEBYRANK', s.receipts, 0, -10001)
  redis.call('PEXPIRE', s.receipts, 600000)
end
