-- Request to read, poll for it, or acknowledge it. request_slow_path.lua answers what is not answered here.
--
-- KEYS     as in hold.lua
-- ARGV     as in request.lua, with the span 0
-- Returns  as in answers.lua

local wait, known = ARGV[7] == '1', ARGV[10]
local owner, number, following, others = holder()
if owner == token then
  -- A version of distlock without readers has handed the lock off to us as to a writer.
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
