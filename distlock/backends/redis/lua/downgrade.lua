-- Turn the exclusive hold into a reader's, and let in the readers that are first in the queue.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua
-- Returns  {token, 1}  done, now or before
--          {token, 0}  the hold is not ours

local owner, _, following, others = holder()
local now, one = clock(), member('0', token)
if owner == READERS and keep(one, now) then
  return {token, 1}
end
if owner ~= token then
  return {token, 0}
end
-- PEXPIRE is allowed even when the server is out of memory. After it the server allows the rest of the script, too.
redis.call('PEXPIRE', KEYS[1], digits(ttl))
-- Readers share the last number of the block.
local last = digits(tonumber(following) - 1)
redis.call('SET', KEYS[1], last .. ' ' .. following .. ' ' .. others .. ' ' .. READERS, 'PX', digits(ttl))
redis.call('DEL', HOLDERS)
redis.call('ZADD', HOLDERS, ms(now, ttl), one)
redis.call('PEXPIREAT', HOLDERS, ms(now, ttl))
if others == '+' then
  admit(now)
end
return {token, 1}
