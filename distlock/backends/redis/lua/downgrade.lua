-- Make a reader of the holder, and let in those readers that are first in line.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua
-- Returns  {token, 1}  done, now or before
--          {token, 0}  it is not ours

local owner, _, following, others = holder()
local now, one = clock(), member('0', token)
if owner == READERS and keep(one, now) then
  return {token, 1}
end
if owner ~= token then
  return {token, 0}
end
-- First a command that no server refuses: after it, a server out of memory lets the rest of the script pass too.
redis.call('PEXPIRE', KEYS[1], digits(ttl))
-- Readers share the last number that was given out.
local last = digits(tonumber(following) - 1)
redis.call('SET', KEYS[1], last .. ' ' .. following .. ' ' .. others .. ' ' .. READERS, 'PX', digits(ttl))
redis.call('DEL', HOLDERS)
redis.call('ZADD', HOLDERS, ms(now, ttl), one)
redis.call('PEXPIREAT', HOLDERS, ms(now, ttl))
if others == '+' then
  admit(now)
end
return {token, 1}
