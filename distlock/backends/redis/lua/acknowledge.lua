-- Start the lifetime of a hold that was handed off by a push. Never grants or queues: a hold that has been handed on
-- since is lost.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua, and
--          9 the number of the hold. A late request with the same token may have got a later hold meanwhile
-- Returns  {token, 1}  done
--          {token, 0}  the hold is not ours, or has another number

local owner, number = holder()
if owner ~= token or number ~= ARGV[9] then
  return {token, 0}
end
extend()
return {token, 1}
