-- Give back what is ours: a whole hold, what a reader has, or permits. The last one out hands off, and each permit
-- lets in who is first.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua
-- Returns  {token, 1}  it was ours
--          {token, 0}  it was not

local owner, number, following, others = holder()

if owner == token then
  -- First a command that no server refuses: after it, a server out of memory lets the rest of the script pass too.
  -- And whatever fails below, the lock is free.
  redis.call('DEL', KEYS[1])
  if others == '+' then
    pass_on_or_leave(clock(), number, following)
  else
    leave_rest(number, following)
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
  leave_rest(number, following)
else
  redis.call('DEL', KEYS[1])
  pass_on_or_leave(now, number, not permits and following or nil)
end
return {token, 1}
