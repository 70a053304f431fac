-- Start the lifetime of a hold anew. PEXPIRE is never refused, so a full server does not cost anybody the lock.
--
-- KEYS     as in handover.lua
-- ARGV     as in handover.lua
-- Returns  {token, 1}  done
--          {token, 0}  it is not ours

if holder() ~= token then
  return {token, 0}
end
redis.call('PEXPIRE', KEYS[1], digits(ttl))
return {token, 1}
