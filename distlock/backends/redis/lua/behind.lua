-- The second half of a request for a lock, or to read, behind lifetime.lua and queue.lua: others are before it.

local reads = ARGV[6] == '0'

-- To a reader: how many wait.
local function granted(number)
  return {token, HELD, number, reads and redis.call('LLEN', KEYS[3]) or nil}
end

if owner then
  now = clock()
  if others == '-' then
    redis.call('SET', KEYS[1], number .. ' ' .. following .. ' + ' .. owner, 'KEEPTTL')
  end
  local rest, entry, new = queue(now, known)
  if new and left == -1 then
    left = redis.call('PTTL', KEYS[1])
  end
  return {token, QUEUED, left, rest, entry}
end
-- Free, but others came first. Each ask helps them to it.
local rest, entry
if wait then
  rest, entry = queue(now, known)
end
local winner, detail = pass_on(now, nil, token, ttl)
if winner == token then
  return granted(detail)
end
if wait then
  return {token, QUEUED, redis.call('PTTL', KEYS[1]), rest, entry}
end
if not winner and detail then
  -- Those that are left there do not hear.
  if reads then
    return granted(open(token, ttl, '+', now))
  end
  return granted(grant(token, span, ttl, '+', now))
end
return {token, BUSY}
