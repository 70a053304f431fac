-- A request of a reader, or for permits. This file follows queue.lua.

-- Request to enter, poll for it, or acknowledge it. *number*: the hold's; *permits*: as for settle.
local function share(now, wait, known, number, permits)
  local one = member(ARGV[6], token)
  local ours = keep(one, now, permits)
  local waiting = redis.call('LLEN', KEYS[3])
  if waiting > 0 and (ours or not wait) then
    admit(now, permits)
    waiting = redis.call('LLEN', KEYS[3])
  end
  if ours then
    return {token, HELD, number, waiting}
  end
  if waiting == 0 and fits(ARGV[6]) then
    out = out + permits_of(one)
    redis.call('ZADD', HOLDERS, ms(now, ttl), one)
    settle(now, permits)
    return {token, HELD, number, 0}
  end
  if not wait then
    return {token, BUSY}
  end
  local interval, entry = queue(now, known)
  if waiting > 0 and admit(now, permits, token, ttl) then
    return {token, HELD, number, redis.call('LLEN', KEYS[3])}
  end
  return {token, QUEUED, -1, interval, entry}
end
