-- The place of a process in the queue.

-- How long a waiter rests between two asks, ms: one in front this long, the others longer by so much for each
-- process before them, up to the last number. They are told when it is their turn, so a crowd need not ask often.
local SHORTEST_REST_MS, REST_MS, REST_PER_PLACE_MS, LONGEST_REST_MS = 250, 1000, 20, 20000

-- How long one rests that has so many before it.
local function rest_of(place)
  if place == 0 then
    -- Should its push be lost, it asks while the hand-off is still worth something.
    return math.min(REST_MS, math.max(window, SHORTEST_REST_MS))
  end
  return math.min(math.max(REST_MS, place * REST_PER_PLACE_MS), LONGEST_REST_MS)
end

-- What it said before still holds: see tell_next.
local function written(now, known, rest)
  local said = tonumber(string.match(known, '^%S+ (%d+)') or 0)
  return process .. ' ' .. digits(math.max(now / 1000 + rest, said)) .. ' ' .. ARGV[6] .. ' ' .. ARGV[9] .. ' ' .. token
end

-- Where this process is in the queue. Only where an answer was lost it is not sure what it has there.
local function find(known)
  local doubt, entry = string.match(known, '^(%??)(.*)$')
  local place = entry ~= '' and redis.call('LPOS', KEYS[3], entry)
  if place or doubt == '' then
    return place
  end
  for place, entry in ipairs(redis.call('LRANGE', KEYS[3], 0, -1)) do
    if string.match(entry, '^%S+') == process then
      return place - 1
    end
  end
  return false
end

-- Keeps the place of a process that is in the queue already. Its entry takes the newest token, because a process
-- has one ask under way: the older one was given up. Returns how long it rests, its entry, and whether the queue
-- is new.
local function queue(now, known)
  local place = find(known)
  if place then
    local rest = rest_of(place)
    local entry = written(now, known, rest)
    -- First a write that no server refuses: after it, a server out of memory lets the rest of the script pass
    -- too. A waiter that is new there is refused before anything is changed.
    redis.call('PEXPIRE', KEYS[3], QUEUE_TTL_MS)
    redis.call('LSET', KEYS[3], place, entry)
    return rest, entry, false
  end
  local entry = written(now, known, REST_MS)
  local length = redis.call('RPUSH', KEYS[3], entry)
  local rest = rest_of(length - 1)
  if rest > REST_MS then
    entry = written(now, known, rest)
    redis.call('LSET', KEYS[3], -1, entry)
  end
  if length == 1 or rest > REST_MS then
    redis.call('PEXPIRE', KEYS[3], QUEUE_TTL_MS)
  end
  return rest, entry, length == 1
end
