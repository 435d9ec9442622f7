-- rights: tries commands that this user may lack the right to run, in ways that leave nothing.
-- keys of the call: absent
-- runs while its slot moves
-- ARGV[1..] a command and its arguments, such as 'HGET @ f'; '@' stands for the key
-- returns {command, ...}: those that Redis does not let this user run, or has under another name (rename-command)
local lacking, may_delete = {}, true
local function try(...)
  local reply = redis.pcall(...)
  local text = type(reply) == 'table' and reply.err or ''
  -- Redis 6.2, Redis 7.0 and later, Valkey 9.1
  local is_denied = string.find(text, 'user executing the script') or string.find(text, 'NOPERM')
    or string.find(text, 'ACL failure') or string.find(text, 'Unknown %a* ?command called from')
  if not is_denied then return end
  lacking[#lacking + 1] = ...
  may_delete = may_delete and ... ~= 'del'
end
for i = 1, #ARGV, 1 do
  local call = {}
  for word in string.gmatch(ARGV[i], '%S+') do call[#call + 1] = word == '@' and absent or word end
  try(unpack(call))
end
if may_delete then -- no call of HSETNX changes nothing
  try('hsetnx', absent, 'f', 'v')
  redis.pcall('DEL', absent)
end
return lacking
