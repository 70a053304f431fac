-- Ask, ask again, and acknowledge.
--
-- KEYS     as in handover.lua
-- ARGV     as in handover.lua
-- Returns  {token, 1, number}  held: the lifetime starts anew, which is also the acknowledgement
--          {token, 2, pttl, rest}  queued behind a hold that lives that many ms (-2: behind a free lock); it is
--                             worth asking again after rest ms
--          {token, 3}         somebody else's
--          {token, 4}         somebody else's, and would have been for ever: it has a lifetime now
--          {token, 5}         not one of our holds

local wait = ARGV[7] == '1'

-- Keeps the place of a process that is in the queue already. Its entry takes the newest token, because a
-- process has one ask under way: the older one was given up. Returns how long it rests until it asks again.
local function queue(now)
  local placed = redis.call('LPOS', KEYS[3], process)
  local place = placed or redis.call('LLEN', KEYS[3])
  local rest = math.min(math.max(REST_MS, place * REST_PER_PLACE_MS), LONGEST_REST_MS)
  if place == 0 then
    -- Should its hint be lost, it asks while the hand-over is still worth something.
    rest = math.min(REST_MS, math.max(window, SHORTEST_REST_MS))
  end
  if placed then
    -- First a write that no server refuses: after it, a server out of memory lets the rest of the script pass
    -- too. A waiter that is new there is refused before anything is changed.
    redis.call('PEXPIRE', KEYS[3], QUEUE_TTL_MS)
  end
  redis.call('HSET', KEYS[4], process, digits(now / 1000 + rest) .. ' ' .. digits(span) .. ' ' .. token)
  if not placed then
    redis.call('RPUSH', KEYS[3], process)
  end
  redis.call('PEXPIRE', KEYS[3], QUEUE_TTL_MS)
  redis.call('PEXPIRE', KEYS[4], QUEUE_TTL_MS)
  return rest
end

local owner, number = holder()
if owner == token then
  redis.call('PEXPIRE', KEYS[1], digits(ttl))
  return {token, HELD, number}
end
if owner == '' then
  return {token, FOREIGN}
end
if owner then
  local left = redis.call('PTTL', KEYS[1])
  if left == -1 then
    -- Somebody took its lifetime away. A holder that lives renews it; what no process of ours wrote is left alone.
    if not string.match(owner, '^%x+$') or (#owner ~= 32 and #owner ~= 48) then
      return {token, FOREIGN}
    end
    redis.call('PEXPIRE', KEYS[1], digits(ttl))
    return {token, UNENDING}
  end
  if not wait then
    return {token, BUSY}
  end
  return {token, QUEUED, left, queue(clock())}
end

local now = clock()
if redis.call('LLEN', KEYS[3]) == 0 then
  return {token, HELD, grant(token, span, ttl, now)}
end
-- Free, but others came first. Each ask helps them to it.
local rest = wait and queue(now)
local winner, detail = pass_on(now, token, ttl)
if winner == token then
  return {token, HELD, detail}
end
if not wait then
  if not winner and detail then
    return {token, HELD, grant(token, span, ttl, now)}
  end
  return {token, BUSY}
end
return {token, QUEUED, redis.call('PTTL', KEYS[1]), rest}
