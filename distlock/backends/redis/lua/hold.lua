-- The hold, and what all scripts share: it stands first in each of them.
--
-- KEYS  1 hold     string "<number> <next> <others> <token>", lives as long as the hold (or, not yet acknowledged,
--                  the window). <next>: the first number after its block. <others>: '+' if others may wait, else '-'.
--                  After a release for a while "<number> <next>": it is free, and nobody waits.
--                  <next> begins with a 0 where the counter may be as small as <next>: see pin
--       2 counter  string, above every number that was given out: <next>, rounded up to a multiple of RESERVED
--       3 queue    list of the waiting processes, the oldest first:
--                  "<process> <asks again by, ms> <span> <poll> <token>"
-- ARGV  1 process    2 key, as the push tells it    3 window, ms    4 fence_ttl, ms    5 ttl, ms    6 span
--       7 '1' to queue, '0' to leave no trace    8 token

-- What a hold looks like, and what is left of one.
local HOLD, LEFT = '^(%d+) (%d+) ([+-]) (.+)$', '^(%d+) (%d+)$'

-- No waiter leaves the queue alone for half that long, so it only goes when all waiters did.
local QUEUE_TTL_MS = 60000
-- The counter is written once for so many numbers, a tenth of a second of the clock. The hold remembers how many of
-- them were given out. Where it ends by itself nobody knows that, and the next hold begins at the counter. The clock has
-- passed the counter by then, so that numbers do not run ahead of it, unless the lease was shorter than SHORT_MS.
local RESERVED = 131072
local SHORT_MS = math.ceil(RESERVED / 1000)
-- Beyond this a double, which is what Lua counts with, leaves numbers out.
local MAX_NUMBER = 9007199254740992

local process, key, token = ARGV[1], ARGV[2], ARGV[8]
local window, fence_ttl, ttl, span = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

-- Of the hold: its token, its number, the one after its block, and whether others may wait. Where the lock is free,
-- no token, and numbers if some are left. What we did not write is nobody's: ''.
local function holder()
  local hold = redis.pcall('GET', KEYS[1])
  if not hold then
    return nil
  end
  if type(hold) == 'table' then
    if not string.find(hold.err, 'WRONGTYPE') then
      redis.call('GET', KEYS[1])
    end
    return ''
  end
  local number, following, others, owner = string.match(hold, HOLD)
  if not owner then
    number, following = string.match(hold, LEFT)
    if not number then
      return ''
    end
  end
  return owner, number, following, others
end

-- The server's clock in microseconds. Asked once per script: it moves on while a script runs.
local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- "%d" because tostring and ".." write a number of this size as 1.7e+15.
local function digits(number)
  return string.format('%d', number)
end

local function write_counter(number, now)
  redis.call('SET', KEYS[2], digits(number), 'PX', digits(fence_ttl + math.max(0, math.ceil((number - now) / 1000))))
end

local function is_pinned(following)
  return string.sub(following, 1, 1) == '0'
end

-- Let the counter of a hold with a short lease be its <next>, so that no number is lost if it ends by itself.
local function pin()
  local owner, number, following, others = holder()
  if others and not is_pinned(following) then
    redis.call('SET', KEYS[1], number .. ' 0' .. following .. ' ' .. others .. ' ' .. owner, 'KEEPTTL')
    write_counter(tonumber(following), clock())
  end
end

-- Start the lease anew. PEXPIRE comes first, since a full server refuses the other commands.
local function extend()
  redis.call('PEXPIRE', KEYS[1], digits(ttl))
  if ttl < SHORT_MS then
    pin()
  end
end

-- Return the number that the counter needs for a block that ends before *after*; nil where it is large enough, as the
-- <next> of the hold before shows.
local function reservation(after, lifetime, following)
  if lifetime < SHORT_MS then
    return after
  end
  if not following or is_pinned(following) or after > math.ceil(tonumber(following) / RESERVED) * RESERVED then
    return math.ceil(after / RESERVED) * RESERVED
  end
end

-- Write the hold of *owner*: a block of *reserve* numbers, and where *counter* is not nil the counter.
local function write(owner, number, reserve, lifetime, others, now, counter)
  local after = (lifetime < SHORT_MS and '0' or '') .. digits(number + reserve)
  -- The first write is one that a full server refuses, so that an acquire fails before it changed anything.
  redis.call('SET', KEYS[1], digits(number) .. ' ' .. after .. ' ' .. others .. ' ' .. owner, 'PX', digits(lifetime))
  if counter then
    write_counter(counter, now)
  end
end

-- Make *owner* the holder and reserve its block of numbers. Returns the first of them, as text.
--
-- A number is the larger of the clock and *following*, the <next> of the hold before; where that is not known, of the
-- clock and the counter. So it grows although all of it is forgotten: by then the clock has passed it. Hence the counter
-- lives for as long as it is ahead of the clock, plus fence_ttl, which is how far the clock may be set back without harm.
-- *least* is for a counter that was forgotten too early.
local function grant(owner, reserve, lifetime, others, now, following, least)
  local number = math.max(tonumber(following) or 0, now, least or 0)
  local reserved = reservation(number + reserve, lifetime, following)
  if reserved then
    local counter = tonumber(redis.call('GET', KEYS[2]) or 0)
    if not counter then
      error('FOREIGN')
    end
    if not following and counter > number then
      number = counter
      reserved = reservation(number + reserve, lifetime)
    end
    if reserved > MAX_NUMBER then
      error('the fences of ' .. KEYS[2] .. ' are used up: is the clock of the server right?')
    end
  end
  write(owner, number, reserve, lifetime, others, now, reserved)
  if reserved and others == '+' then
    -- Where the lock goes round so fast that nobody has to ask again, nobody else does this.
    redis.call('PEXPIRE', KEYS[3], QUEUE_TTL_MS)
  end
  return digits(number)
end
