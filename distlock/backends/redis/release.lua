-- Give the hold back, and hand it over to the next process in the same step.
--
-- KEYS     as in handover.lua
-- ARGV     as in handover.lua
-- Returns  {token, 1}  it was ours
--          {token, 0}  it was not

if holder() ~= token then
  return {token, 0}
end
-- First a command that no server refuses: after it, a server out of memory lets the rest of the script pass too.
-- And whatever fails below, the lock is free.
redis.call('DEL', KEYS[1])
if redis.call('LLEN', KEYS[3]) > 0 then
  pass_on(clock())
end
return {token, 1}
