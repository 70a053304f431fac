-- Start the lifetime of a hold that came by a push. It never grants or queues: what has passed on meanwhile is lost.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua, and
--          9 the number of the hold: an ask that came again late may have another one, and others between
-- Returns  {token, 1}  done
--          {token, 0}  it is not ours, or not that one

local owner, number = holder()
if owner ~= token or number ~= ARGV[9] then
  return {token, 0}
end
extend()
return {token, 1}
