-- Give the hold a new block of numbers, above one that a database remembers and this server does not.
--
-- KEYS     as in handover.lua
-- ARGV     as in handover.lua, and
--          9 the number
-- Returns  {token, 1, number}  done, now or before: the lifetime starts anew
--          {token, 0}         it is not ours
--          {token, 2}         ours, but too few numbers are left above that one

local floor = tonumber(ARGV[9])
local owner, number = holder()
if owner ~= token then
  return {token, 0}
end
if tonumber(number) > floor then
  redis.call('PEXPIRE', KEYS[1], digits(ttl))
  return {token, 1, number}
end
if floor > MAX_NUMBER / 2 then
  return {token, 2}
end
return {token, 1, grant(token, span, ttl, clock(), floor + 1)}
