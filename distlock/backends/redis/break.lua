-- End a hold that an operator has seen, and none after it. The next process in the queue gets it.
--
-- KEYS     as in handover.lua
-- ARGV     as in handover.lua, and
--          9 the first number of the hold
-- Returns  {token, 1}  done
--          {token, 0}  it has ended, or there was none

local owner, number = holder()
if not number or number ~= ARGV[9] then
  return {token, 0}
end
-- The token begins with the process. On its channel a message that is no key says: look after your holds.
-- Before the first write: an operator whose rights don't suffice has changed nothing.
redis.call('PUBLISH', 'dl:1:ch:' .. string.sub(owner, 1, 16), '')
redis.call('DEL', KEYS[1])
-- It is broken, whatever goes wrong now: the waiters ask by themselves, too.
pcall(function()
  pass_on(clock())
end)
return {token, 1}
