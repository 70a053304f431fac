-- Ask for permits, ask again, and acknowledge.
--
-- KEYS     as in hold.lua
-- ARGV     as in request.lua. The span is "<permits>/<limit>"
-- Returns  as in answers.lua

-- What one that was granted permits named last as their limit: deployments differ.
local LIMIT = KEYS[1] .. ':limit'
local NAMED_MS = 60000

local wait, known = ARGV[7] == '1', ARGV[10]

-- To one that holds: another limit, that somebody named; 0: nobody did. What is refused here costs nobody a permit.
local function told(answer)
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
  return told(share(now, wait, known, number, number))
end
number = digits(now)
if redis.call('LLEN', KEYS[3]) == 0 and fits(ARGV[6]) then
  local one = member(ARGV[6], token)
  -- First a write that a full server refuses.
  redis.call('SET', KEYS[1], number .. ' ' .. digits(permits_of(one)) .. ' + ' .. PERMITS, 'PX', digits(ttl))
  redis.call('DEL', HOLDERS)
  redis.call('ZADD', HOLDERS, ms(now, ttl), one)
  redis.call('PEXPIREAT', HOLDERS, ms(now, ttl))
  return told({token, HELD, number, 0})
end
redis.call('DEL', HOLDERS)
return told(share(now, wait, known, number, number))
