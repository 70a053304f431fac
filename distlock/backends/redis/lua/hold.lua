-- The hold, and what all scripts of locks share. It stands first in them; only release_fast_path.lua precedes it.
--
-- KEYS  1 hold     string "<number> <next> <others> <token>". Lives as long as the hold or, before its acknowledgement,
--                  for the window. <next>: the first number after its block; with a leading 0 if the counter is
--                  pinned, see pin. <others>: '+' if other processes may wait, else '-'.
--                  After a release, for a while, the remnant "<number> <next>": the lock is free, and nobody waits
--       2 counter  string, above every number that was given out: <next>, rounded up to a multiple of RESERVED
--       3 queue    list of the waiting processes, the first one first:
--                  "<process> <time of its next poll, ms> <span> <number of its poll> <token>"
-- ARGV  1 process    2 key, for pushes    3 window, ms    4 fence_ttl, ms    5 ttl, ms    6 span (see waiters.lua)
--       7 '1': queue if the lock is taken; '0': don't    8 token

-- The patterns of a hold, and of a remnant.
local HOLD, REMNANT = '^(%d+) (%d+) ([+-]) (.+)$', '^(%d+) (%d+)$'

-- Every waiter polls at least every 20 s, see queue.lua, and each poll restarts this lifetime. So the queue expires
-- only when all waiters are gone.
local QUEUE_TTL_MS = 60000
-- The counter is written once for this many numbers, which are a tenth of a second of the clock in microseconds. The
-- hold says how many of them were given out. After the hold has expired, that is unknown, and the next hold begins at
-- the counter. By then the clock has passed the counter, so that numbers do not run ahead of the clock, unless the lease
-- was shorter than SHORT_MS.
local RESERVED = 131072
local SHORT_MS = math.ceil(RESERVED / 1000)
-- Lua's numbers are doubles, which can't represent every integer above this one.
local MAX_NUMBER = 9007199254740992

local process, key, token = ARGV[1], ARGV[2], ARGV[8]
local window, fence_ttl, ttl, span = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

-- Return the hold's token, number, <next> and <others>. If the lock is free, return nil, and the numbers of the remnant,
-- if any. If another program wrote the value, return ''.
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
    number, following = string.match(hold, REMNANT)
    if not number then
      return ''
    end
  end
  return owner, number, following, others
end

-- Return the server's clock in microseconds. A script calls this once, because time moves on while it runs.
local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- Return *number* as text. tostring and ".." would write a number of this size as 1.7e+15.
local function digits(number)
  return string.format('%d', number)
end

local function write_counter(number, now)
  redis.call('SET', KEYS[2], digits(number), 'PX', digits(fence_ttl + math.max(0, math.ceil((number - now) / 1000))))
end

local function is_pinned(following)
  return string.sub(following, 1, 1) == '0'
end

-- Pin the counter: set it to the <next> of a hold with a short lease, so that no number is lost if the hold expires.
local function pin()
  local owner, number, following, others = holder()
  if others and not is_pinned(following) then
    redis.call('SET', KEYS[1], number .. ' 0' .. following .. ' ' .. others .. ' ' .. owner, 'KEEPTTL')
    write_counter(tonumber(following), clock())
  end
end

-- Restart the lease. PEXPIRE comes first: a server that is out of memory allows it, and then the rest of the script.
local function extend()
  redis.call('PEXPIRE', KEYS[1], digits(ttl))
  if ttl < SHORT_MS then
    pin()
  end
end

-- Return the value that the counter needs for a block that ends before *after*; nil if *following*, the <next> of the
-- previous hold, shows that the counter is large enough.
local function reservation(after, lifetime, following)
  if lifetime < SHORT_MS then
    return after
  end
  if not following or is_pinned(following) or after > math.ceil(tonumber(following) / RESERVED) * RESERVED then
    return math.ceil(after / RESERVED) * RESERVED
  end
end

-- Write the hold of *owner* with a block of *reserve* numbers. Write the counter, too, if *counter* is not nil.
local function write(owner, number, reserve, lifetime, others, now, counter)
  local after = (lifetime < SHORT_MS and '0' or '') .. digits(number + reserve)
  -- SET comes first: a server that is out of memory refuses it, so that an acquisition fails before it changes anything.
  redis.call('SET', KEYS[1], digits(number) .. ' ' .. after .. ' ' .. others .. ' ' .. owner, 'PX', digits(lifetime))
  if counter then
    write_counter(counter, now)
  end
end

-- Make *owner* the holder, and reserve a block of numbers. Returns the first number, as text.
--
-- The number is the maximum of the clock and *following*, the <next> of the previous hold; if that is unknown, of the
-- clock and the counter. So numbers grow even if the counter has expired, because the clock has passed it by then: the
-- counter lives as long as it is ahead of the clock, plus fence_ttl, by which the clock may be set back without harm.
-- *least* raises the number if the counter was lost too early.
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
    -- If hand-offs are so quick that no waiter polls, nothing else restarts the lifetime of the queue.
    redis.call('PEXPIRE', KEYS[3], QUEUE_TTL_MS)
  end
  return digits(number)
end
