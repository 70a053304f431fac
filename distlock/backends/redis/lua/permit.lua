-- Request permits, poll for them, or acknowledge them.
--
-- KEYS     as in hold.lua
-- ARGV     as in request.lua, with the span "<permits>/<limit>"
-- Returns  as in answers.lua

-- The limit in the latest granted request. Limits may differ during a deployment.
local LIMIT = KEYS[1] .. ':limit'
local NAMED_MS = 60000

local wait, known = ARGV[7] == '1', ARGV[10]

-- Add another limit to the answer of a granted request, or 0 if none is known. pcall: a server that refuses this write
-- must not cost the caller its permits.
local function with_limit(answer)
  if answer[2] == HELD then
    local limit = string.match(ARGV[6], '%d+$')
    local named = redis.pcall('SET', LIMIT, limit, 'PX', NAMED_MS, 'GET')
    local differs = type(named) == 'string' and named ~= limit
    answer[5] = differs and tonumber(named) or 0
  end
  return answer
end

local owner, number, following = holder()
if owner and owner ~= PERMITS then
  return {token, FOREIGN}
end
local now = clock()
if owner then
  look(now, tonumber(following))
  return with_limit(share(now, wait, known, number, number))
end
number = digits(now)
if redis.call('LLEN', KEYS[3]) == 0 and fits(ARGV[6]) then
  local one = member(ARGV[6], token)
  -- SET comes first: a server that is out of memory refuses it, before anything has changed.
  redis.call('SET', KEYS[1], number .. ' ' .. digits(permits_of(one)) .. ' + ' .. PERMITS, 'PX', digits(ttl))
  redis.call('DEL', HOLDERS)
  redis.call('ZADD', HOLDERS, ms(now, ttl), one)
  redis.call('PEXPIREAT', HOLDERS, ms(now, ttl))
  return with_limit({token, HELD, number, 0})
end
redis.call('DEL', HOLDERS)
return with_limit(share(now, wait, known, number, number))
