-- Release the exclusive hold, and hand it off to the next process in the same step. release_fast_path.lua begins the
-- release, and release_any.lua ends it.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua, and
--          9 "<number> <next>" of the hold, as its process knows it; '': unknown
-- Returns  {token, 1}  the hold was ours
--          {token, 0}  it was not

if was == left .. ' + ' .. token then
  local _, _, nobody = hand_off(clock(), string.match(left, '%d+$'))
  if nobody and ttl > REMNANT_MS then
    redis.call('PEXPIRE', KEYS[1], digits(REMNANT_MS))
  end
  return {token, 1}
end
-- release_fast_path.lua has written the remnant over another value, or where there was none: undo that.
if type(was) == 'string' then
  redis.call('SET', KEYS[1], was, 'KEEPTTL')
elseif was == false then
  redis.call('DEL', KEYS[1])
end
