-- Give the hold a new block of numbers, above a number that a database has seen.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua, and
--          9 the number
-- Returns  {token, 1, number}  done, now or before. The lifetime has been restarted
--          {token, 0}         the hold is not ours
--          {token, 2}         the hold is ours, but too few numbers are left above that number

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
  -- Earlier readers keep the number that they got.
  number = grant(READERS, 1, ttl, others, now, following, floor + 1)
  settle(now)
  return {token, 1, number}
end
return {token, 1, grant(token, span, ttl, others, now, following, floor + 1)}
