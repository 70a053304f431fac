-- Restart the lifetime of a hold. PEXPIRE is allowed even when the server is out of memory, so no lock is lost then.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua
-- Returns  {token, 1}  done
--          {token, 2}  done, and the release of the hold was requested
--          {token, 0}  the hold is not ours

local owner, number, following = holder()
local ours = owner == token
if ours then
  extend()
elseif shares(owner) then
  local now, permits = clock(), owner == PERMITS and number
  look(now, permits and tonumber(following) or 0)
  ours = keep(member(ARGV[6], token), now, permits)
end
if not ours then
  return {token, 0}
end
return {token, is_wanted(token) and 2 or 1}
