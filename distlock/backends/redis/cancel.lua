-- Leave the queue, unless the hold has come already. Being one script, it cannot race with a hand-over.
--
-- KEYS     as in handover.lua
-- ARGV     as in handover.lua
-- Returns  {token, 1}  the hold is ours, is kept and starts its lifetime anew
--          {token, 0}  it is not, and will not be

local owner = holder()
if owner == token then
  redis.call('PEXPIRE', KEYS[1], digits(ttl))
  return {token, 1}
end
local entry = redis.call('HGET', KEYS[4], process)
if entry and string.match(entry, '^%d+ %d+ (.*)$') == token then
  leave(process)
end
if not owner and redis.call('LLEN', KEYS[3]) > 0 then
  pass_on(clock())
end
return {token, 0}
