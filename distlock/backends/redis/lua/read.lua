-- Ask to read, ask again, and acknowledge. What is not answered here is answered in behind.lua.
--
-- KEYS     as in hold.lua
-- ARGV     as in request.lua. The span is 0
-- Returns  as in answers.lua

local wait, known = ARGV[7] == '1', ARGV[10]
local owner, number, following, others = holder()
if owner == token then
  -- A version without readers has handed it over, as to a writer.
  extend()
  return {token, HELD, number, 0}
end
if owner == '' then
  return {token, FOREIGN}
end
local now = clock()
if owner == READERS then
  return share(now, wait, known, number)
end
if not owner and (following or redis.call('LLEN', KEYS[3]) == 0) then
  return {token, HELD, open(token, ttl, '-', now, following), 0}
end
