-- now_ms(injected): Redis's own time in ms, or the clock that a test injects ('' means none).
local function now_ms(injected)
  if injected ~= '' then return tonumber(injected) end
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
