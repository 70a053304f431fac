-- A request of one that may be inside together with others, behind queue.lua: a reader's or one for permits.

-- Ask, ask again, and acknowledge. *number*: of the hold; *permits*: as in settle.
local function share(now, wait, known, number, permits)
  local one = member(ARGV[6], token)
  local ours = keep(one, now, permits)
  local line = redis.call('LLEN', KEYS[3])
  if line > 0 and (ours or not wait) then
    admit(now, permits)
    line = redis.call('LLEN', KEYS[3])
  end
  if ours then
    return {token, HELD, number, line}
  end
  if line == 0 and fits(ARGV[6]) then
    out = out + permits_of(one)
    redis.call('ZADD', HOLDERS, ms(now, ttl), one)
    settle(now, permits)
    return {token, HELD, number, 0}
  end
  if not wait then
    return {token, BUSY}
  end
  local rest, entry = queue(now, known)
  if line > 0 and admit(now, permits, token, ttl) then
    return {token, HELD, number, redis.call('LLEN', KEYS[3])}
  end
  return {token, QUEUED, -1, rest, entry}
end
