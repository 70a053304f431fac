-- Redlock: begin the block of a hold at the number that the servers which granted it agree on. No number of this
-- server's block has been given out.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua, and
--          9 the number
-- Returns  {token, 1}  done, now or before. The lifetime has been restarted
--          {token, 0}  the hold is not ours

local agreed = tonumber(ARGV[9])
local owner, number, following, others = holder()
if owner ~= token then
  return {token, 0}
end
agreed = math.max(agreed, tonumber(number))
local counter = reservation(agreed + span, ttl, following)
write(token, agreed, span, ttl, others, counter and clock(), counter)
return {token, 1}
