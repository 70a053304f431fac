-- Ask, ask again, and acknowledge. What can be answered without the queue is answered here, the rest in behind.lua.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua, and
--          9 the poll: a number that grows within the process. The push that hands the lock over echoes it
--          10 what this process has in the queue: its entry, or ''. Behind a '?': as far as it knows
-- Returns  as in answers.lua

local wait, known = ARGV[7] == '1', ARGV[10]
local owner, number, following, others = holder()
if owner == token then
  extend()
  return {token, HELD, number}
end
if owner == '' then
  return {token, FOREIGN}
end
local now = nil
if not owner then
  now = clock()
  if following or redis.call('LLEN', KEYS[3]) == 0 then
    return {token, HELD, grant(token, span, ttl, '-', now, following)}
  end
end
