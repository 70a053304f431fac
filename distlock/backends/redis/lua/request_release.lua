-- Ask the holder to give the key back.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua
-- Returns  {token, 1}  done
--          {token, 0}  nobody holds it

-- The holder looks with its next renewal, before its lease ends. One that is still to acknowledge has a longer one
-- before it than is seen here.
local LONGER_MS = 60000

local owner = holder()
if not owner or owner == '' then
  return {token, 0}
end
local tokens = owners(owner)
local lives = digits(math.max(redis.call('PTTL', KEYS[1]), 0) + LONGER_MS)
redis.call('SET', WANTED, ' ' .. table.concat(tokens, ' ') .. ' ', 'PX', lives)
-- Its process, if it listens, looks after its holds at once: see break.lua.
for _, one in ipairs(tokens) do
  redis.call('PUBLISH', 'dl:2:ch:' .. string.sub(one, 1, 16), '')
end
return {token, 1}
