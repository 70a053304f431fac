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
local reserved = math.ceil((agreed + span) / RESERVED) * RESERVED
redis.call('SET', KEYS[1], digits(agreed) .. ' ' .. digits(agreed + span) .. ' ' .. others .. ' ' .. token,
  'PX', digits(ttl))
if reserved > math.ceil(tonumber(following) / RESERVED) * RESERVED then
  redis.call('SET', KEYS[2], digits(reserved), 'PX', digits(fence_ttl + math.ceil((reserved - clock()) / 1000)))
end
return {token, 1}
