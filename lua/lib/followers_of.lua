-- include: link_key

local READ_AT_ONCE = 16

-- followers_of(s, fields): reads the texts, some at a time: one may be large.
-- returns function(i): the text of the i-th field, for i that only rises; false = there is none
local function followers_of(s, fields)
  local key, texts, first, last = link_key(s, 'followers'), nil, 1, 0
  return function(i)
    if i > last then
      first, last = i, math.min(i + READ_AT_ONCE - 1, #fields)
      texts = redis.call('HMGET', key, unpack(fields, first, last))
    end
    return texts[i - first + 1]
  end
end
