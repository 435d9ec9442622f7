-- now_ms(injected): the time of the call.
-- returns Redis's own time in ms, or `injected`, the time of a test's clock, unless that is ''
local function now_ms(injected)
  if injected ~= '' then return tonumber(injected) end
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
