-- Leave the queue, unless the hold was handed off to us already. A script is atomic, so no hand-off can come between.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua, and
--          9 the queue entry of the request; '': none; '?': unknown
-- Returns  {token, 1}  the hold is ours and is kept. Its lifetime has been restarted
--          {token, 0}  the hold is not ours, and the request is not in the queue

local owner, number, following = holder()
if owner == token then
  extend()
  return {token, 1}
end
local now, permits = clock(), owner == PERMITS and number
if shares(owner) then
  look(now, permits and tonumber(following) or 0)
  if keep(member(ARGV[6], token), now, permits) then
    return {token, 1}
  end
end
local known = ARGV[9]
if known == '?' then
  -- There are several entries if a repetition of the request has overtaken it.
  for _, entry in ipairs(redis.call('LRANGE', KEYS[3], 0, -1)) do
    if string.match(entry, '%S*$') == token then
      redis.call('LREM', KEYS[3], 1, entry)
    end
  end
elseif known ~= '' then
  redis.call('LREM', KEYS[3], 1, known)
end
if shares(owner) then
  -- The cancelled request may have blocked waiters that fit in.
  admit(now, permits)
elseif not owner and not following and redis.call('LLEN', KEYS[3]) > 0 then
  hand_off(now)
end
return {token, 0}
