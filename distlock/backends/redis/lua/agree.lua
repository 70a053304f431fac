-- Of several servers that have granted one hold: count it from the number on that they agree on. Nothing of its block
-- here was given out yet.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua, and
--          9 the number
-- Returns  {token, 1}  done, now or before: the lifetime starts anew
--          {token, 0}  it is not ours

local agreed = tonumber(ARGV[9])
local owner, number, following, others = holder()
if owner ~= token then
  return {token, 0}
end
agreed = math.max(agreed, tonumber(number))
local counter = reservation(agreed + span, ttl, following)
write(token, agreed, span, ttl, others, counter and clock(), counter)
return {token, 1}
