-- remember(history, cap, fields): one history entry; `fields` is a row of streamdq/history.py. The cap is
-- approximate: whole nodes go, which costs next to nothing. cap 0: no history.
local function remember(history, cap, fields)
  if cap ~= '0' then redis.call('XADD', history, 'MAXLEN', '~', cap, '*', 'e', fields) end
end
