-- End the hold that an operator has seen, but no later one, and hand the lock off. For readers, all holds end. For
-- permits, those of one token end.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua, and
--          9 the first number of the hold; for permits, the number of their token: see number_of in scripts.py
-- Returns  {token, 1}  done
--          {token, 0}  there is no such hold (any more)

local owner, number, following = holder()
local now, permits, broken = clock(), owner == PERMITS and number, {}
if shares(owner) then
  look(now, permits and tonumber(following) or 0)
  for _, one in ipairs(redis.call('ZRANGE', HOLDERS, 0, -1)) do
    local its = permits and digits(tonumber(string.sub(redis.sha1hex(owner_of(one)), 1, 12), 16))
    if (its or number) == ARGV[9] then
      table.insert(broken, one)
    end
  end
elseif owner and number == ARGV[9] then
  table.insert(broken, owner)
end
if #broken == 0 then
  return {token, 0}
end
-- An empty message on the channel of a process tells it to look at its holds. A token begins with the process id.
-- PUBLISH comes before the first write, so that an operator without the right to publish changes nothing.
for _, one in ipairs(broken) do
  redis.call('PUBLISH', 'dl:2:ch:' .. string.sub(owner_of(one), 1, 16), '')
end
local left = false
if permits then
  redis.call('ZREM', HOLDERS, broken[1])
  out = out - permits_of(broken[1])
  left = settle(now, permits)
end
if not left then
  redis.call('DEL', KEYS[1])
end
-- The hold is broken. If the hand-off fails, the waiters get the lock when they poll.
pcall(function()
  if left then
    admit(now, permits)
  else
    hand_off_or_leave(now, number, not permits and following or nil)
  end
end)
return {token, 1}
