-- What the other scripts share: it stands before each of them.
--
-- KEYS  1 hold     string "<number> <token>", lives as long as the hold (or, not yet acknowledged, the window)
--       2 counter  string, the smallest number that was never given out
--       3 queue    list of the waiting processes, the oldest first
--       4 waiters  hash process -> "<asks again by, ms> <span> <token>"
-- ARGV  1 process    2 key, as the hint tells it    3 window, ms    4 fence_ttl, ms    5 ttl, ms    6 span
--       7 '1' to queue, '0' to leave no trace    8 token

local HELD, QUEUED, BUSY, UNENDING, FOREIGN = 1, 2, 3, 4, 5

-- What a hold looks like.
local HOLD = '^(%d+) (.+)$'

-- How long a waiter rests between two asks, ms: one in front this long, the others longer by so much for each
-- process before them, up to the last number. They are told when it is their turn, so a crowd need not ask often.
local SHORTEST_REST_MS, REST_MS, REST_PER_PLACE_MS, LONGEST_REST_MS = 250, 1000, 20, 20000
-- One that did not ask for this much longer than that is dead.
local STALE_MS = 3000
-- No waiter leaves these keys alone for half that long, so they only go when all waiters did.
local QUEUE_TTL_MS = 60000
-- A script blocks the server: a long queue of dead waiters is cleared over several calls.
local MAX_SKIPS = 64
local MAX_DEAF = 16
-- Beyond this a double, which is what Lua counts with, leaves numbers out.
local MAX_NUMBER = 9007199254740992

local process, key, token = ARGV[1], ARGV[2], ARGV[8]
local window, fence_ttl, ttl, span = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

-- The server's clock in microseconds. Asked once per script: it moves on while a script runs.
local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- "%d" because tostring and ".." write a number of this size as 1.7e+15.
local function digits(number)
  return string.format('%d', number)
end

-- Make *owner* the holder and reserve its block of numbers. Returns the first of them, as text.
--
-- A number is the larger of the counter and the clock, so it grows although the counter is forgotten: by then
-- the clock has passed it. Hence the counter lives for as long as it is ahead of the clock, plus fence_ttl, which
-- is how far the clock may be set back without harm. *least* is for a counter that was forgotten too early.
local function grant(owner, reserve, lifetime, now, least)
  local counter = tonumber(redis.call('GET', KEYS[2]) or 0)
  if not counter then
    error('FOREIGN')
  end
  local number = math.max(counter, now, least or 0)
  local following = number + reserve
  if following > MAX_NUMBER then
    error('the fences of ' .. KEYS[2] .. ' are used up: is the clock of the server right?')
  end
  -- The first write is one that a full server refuses, so that an acquire fails before it changed anything.
  redis.call('SET', KEYS[1], digits(number) .. ' ' .. owner, 'PX', digits(lifetime))
  local counter_ttl = fence_ttl + math.ceil((following - now) / 1000)
  redis.call('SET', KEYS[2], digits(following), 'PX', digits(counter_ttl))
  return digits(number)
end

local function leave(waiter)
  redis.call('LREM', KEYS[3], 1, waiter)
  redis.call('HDEL', KEYS[4], waiter)
end

-- Give the free lock to the first waiter that lives. Returns its token and number; or nil, and whether the whole
-- queue was seen. *mine* needs no hint and gets *lifetime*; another gets a hint, and the window to acknowledge.
local function pass_on(now, mine, lifetime)
  local place = 0
  for _ = 1, MAX_SKIPS do
    local waiter = redis.call('LINDEX', KEYS[3], place)
    if not waiter then
      return nil, true
    end
    local entry = redis.call('HGET', KEYS[4], waiter)
    local asks_by, reserve, owner = string.match(entry or '', '^(%d+) (%d+) (.*)$')
    if not owner or now / 1000 - tonumber(asks_by) > STALE_MS then
      leave(waiter)
    elseif owner == mine then
      leave(waiter)
      return owner, grant(owner, tonumber(reserve), lifetime, now)
    elseif redis.call('PUBLISH', 'dl:1:ch:' .. waiter, key) > 0 then
      leave(waiter)
      return owner, grant(owner, tonumber(reserve), window, now)
    elseif place < MAX_DEAF then
      -- Nobody listens: dead, or about to connect again. It keeps its place until it is stale.
      place = place + 1
    else
      leave(waiter)
    end
  end
  return nil, false
end

-- The token and the first number of the hold; nothing where it is free. What we did not write is nobody's: ''.
local function holder()
  local hold = redis.pcall('GET', KEYS[1])
  if not hold then
    return nil, nil
  end
  if type(hold) == 'table' then
    if not string.find(hold.err, 'WRONGTYPE') then
      redis.call('GET', KEYS[1])
    end
    return '', nil
  end
  local number, owner = string.match(hold, HOLD)
  return owner or '', number
end
