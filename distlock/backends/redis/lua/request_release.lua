-- Request the release of the key from its holders.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua
-- Returns  {token, 1}  done
--          {token, 0}  nobody holds it

-- The request outlives the lease by this, because a hold that is not acknowledged yet will get a longer lease. A holder
-- reads the request with its next renewal.
local LONGER_MS = 60000

local owner = holder()
if not owner or owner == '' then
  return {token, 0}
end
local tokens = owners(owner)
local lives = digits(math.max(redis.call('PTTL', KEYS[1]), 0) + LONGER_MS)
redis.call('SET', WANTED, ' ' .. table.concat(tokens, ' ') .. ' ', 'PX', lives)
-- A process that listens looks at its holds at once: see break.lua.
for _, one in ipairs(tokens) do
  redis.call('PUBLISH', 'dl:2:ch:' .. string.sub(one, 1, 16), '')
end
return {token, 1}
