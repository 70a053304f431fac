-- Give the hold back, and hand it over to the next process in the same step. It begins in give_back.lua, and
-- ends in leave.lua.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua, and
--          9 "<number> <next>" of the hold, as far as its process knows; '' if it does not
-- Returns  {token, 1}  it was ours
--          {token, 0}  it was not

if was == left .. ' + ' .. token then
  local _, _, nobody = pass_on(clock(), string.match(left, '%d+$'))
  if nobody and ttl > LEFT_MS then
    redis.call('PEXPIRE', KEYS[1], digits(LEFT_MS))
  end
  return {token, 1}
end
if type(was) == 'string' then
  redis.call('SET', KEYS[1], was, 'KEEPTTL')
elseif was == false then
  redis.call('DEL', KEYS[1])
end
