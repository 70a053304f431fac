-- Start the lifetime of a hold anew. PEXPIRE is never refused, so a full server does not cost anybody the lock.
--
-- KEYS     1 hold, as in handover.lua
-- ARGV     1 token    2 ttl, ms
-- Returns  {token, 1}  done
--          {token, 0}  it is not ours

local hold = redis.call('GET', KEYS[1])
if not hold or string.match(hold, '^%d+ (.*)$') ~= ARGV[1] then
  return {ARGV[1], 0}
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {ARGV[1], 1}
