-- End a hold that an operator has seen, and none after it. The next process in the queue gets it. Readers end together,
-- of permits only those of one token.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua, and
--          9 the first number of the hold; of permits that of their token, see number_of in scripts.py
-- Returns  {token, 1}  done
--          {token, 0}  it has ended, or there was none

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
-- A token begins with the process. On its channel a message that is no key says: look after your holds.
-- Before the first write: an operator whose rights don't suffice has changed nothing.
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
-- It is broken, whatever goes wrong now: the waiters ask by themselves, too.
pcall(function()
  if left then
    admit(now, permits)
  else
    pass_on_or_leave(now, number, not permits and following or nil)
  end
end)
return {token, 1}
