-- receipt(receipts, group, main, entry, ended, now): remembers for ten minutes that this claim ended its attempt, and
-- how (ended: '' = finished), so that a caller that lost the reply can ask again. Each new receipt removes some old
-- ones; there are 10 000 at most.
local function receipt(receipts, group, main, entry, ended, now)
  local claim = group .. '|' .. main .. '|' .. entry
  redis.call('ZADD', receipts, now, ended == '' and claim or claim .. '|' .. ended)
  local old = redis.call('ZRANGEBYSCORE', receipts, '-inf', now - 600000, 'LIMIT', 0, 10)
  if #old > 0 then redis.call('ZREM', receipts, unpack(old)) end
  redis.call('ZREMRANGEBYRANK', receipts, 0, -10001)
  redis.call('PEXPIRE', receipts, 600000)
end
