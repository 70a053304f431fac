-- Release a hold, of any mode. The end of an exclusive hold or of the last shared one hands the lock off. Permits that
-- are released let in the first waiters.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua
-- Returns  {token, 1}  the hold was ours
--          {token, 0}  it was not

local owner, number, following, others = holder()

if owner == token then
  -- DEL is allowed even when the server is out of memory. After it the server allows the rest of the script, too. And
  -- if anything below fails, the lock is free.
  redis.call('DEL', KEYS[1])
  if others == '+' then
    hand_off_or_leave(clock(), number, following)
  else
    write_remnant(number, following)
  end
  return {token, 1}
end
if not shares(owner) then
  return {token, 0}
end
local now, one, permits = clock(), member(ARGV[6], token), owner == PERMITS and number
if look(now, permits and tonumber(following) or 0, one) or redis.call('ZREM', HOLDERS, one) == 0 then
  return {token, 0}
end
out = out - permits_of(one)
if settle(now, permits) then
  if others == '+' then
    admit(now, permits)
  end
elseif others == '-' then
  write_remnant(number, following)
else
  redis.call('DEL', KEYS[1])
  hand_off_or_leave(now, number, not permits and following or nil)
end
return {token, 1}
