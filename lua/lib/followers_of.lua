-- include: link_key

local READ_AHEAD = 15

-- followers_of(s, fields): reads the texts, some at a time: one may be large.
-- returns function(i): the text of the i-th field, for i that only rises; false = there is none
local function followers_of(s, fields)
  local key, last, first, texts = link_key(s, 'followers'), 0
  return function(i)
    if i > last then
      first, last = i, math.min(i + READ_AHEAD, #fields)
      texts = redis.call('HMGET', key, unpack(fields, first, last))
    end
    return texts[i - first + 1]
  end
end
