-- Give the hold a new block of numbers, above one that a database remembers and this server does not.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua, and
--          9 the number
-- Returns  {token, 1, number}  done, now or before: the lifetime starts anew
--          {token, 0}         it is not ours
--          {token, 2}         ours, but too few numbers are left above that one

local floor = tonumber(ARGV[9])
local owner, number, following, others = holder()
local now = clock()
local reads = owner == READERS and keep(member('0', token), now)
if owner ~= token and not reads then
  return {token, 0}
end
if tonumber(number) > floor then
  if not reads then
    extend()
  end
  return {token, 1, number}
end
if floor > MAX_NUMBER / 2 then
  return {token, 2}
end
if reads then
  -- Readers that have come before keep the number that they were told.
  number = grant(READERS, 1, ttl, others, now, following, floor + 1)
  settle(now)
  return {token, 1, number}
end
return {token, 1, grant(token, span, ttl, others, now, following, floor + 1)}
