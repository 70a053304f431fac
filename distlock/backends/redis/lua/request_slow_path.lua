-- The end of a request, exclusive or to read, that was not answered yet. This file follows restore_lifetime.lua and
-- queue.lua.

local reads = ARGV[6] == '0'

-- Readers also get the number of waiters.
local function granted(number)
  return {token, HELD, number, reads and redis.call('LLEN', KEYS[3]) or nil}
end

if owner then
  now = clock()
  if others == '-' then
    redis.call('SET', KEYS[1], number .. ' ' .. following .. ' + ' .. owner, 'KEEPTTL')
  end
  local interval, entry, new = queue(now, known)
  if new and left == -1 then
    left = redis.call('PTTL', KEYS[1])
  end
  return {token, QUEUED, left, interval, entry}
end
-- The lock is free, but other processes came first: hand it off to them.
local interval, entry
if wait then
  interval, entry = queue(now, known)
end
local winner, detail = hand_off(now, nil, token, ttl)
if winner == token then
  return granted(detail)
end
if wait then
  return {token, QUEUED, redis.call('PTTL', KEYS[1]), interval, entry}
end
if not winner and detail then
  -- The waiters before us do not listen.
  if reads then
    return granted(open(token, ttl, '+', now))
  end
  return granted(grant(token, span, ttl, '+', now))
end
return {token, BUSY}
