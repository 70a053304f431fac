-- Those that wait: it stands in the scripts that may let one of them in, behind hold.lua.

-- What a waiter looks like. What it wants: a number is the span of its block, 0 a reader, "3/10" three of ten permits.
local ENTRY = '^(%S+) (%d+) ([%d/]+) (%d+) (.*)$'
-- One that did not ask for this much longer than it said is dead.
local STALE_MS = 3000
-- A waiter that asks again within this is left alone.
local SOON_MS = 1000
-- So far behind the front one is told to ask, where the line moves fast: so many may hang together.
local BEHIND = 8

local function lives(asks_by, now)
  return now / 1000 - tonumber(asks_by) <= STALE_MS
end

local function rests(asks_by, now)
  return tonumber(asks_by) - now / 1000 > SOON_MS
end

-- A long line that moves fast brings a waiter to its front before its rest is over. Should the one before it not take
-- what it was handed, nobody would see that for as long. So the next in line is told to ask, by a push of no poll. And
-- one a few places behind: from then on it rests no longer than those in front, should all before it hang together.
local function tell_next(now)
  local line = redis.call('LRANGE', KEYS[3], 0, BEHIND)
  for _, entry in ipairs({line[1] or '', line[1 + BEHIND] or ''}) do
    local waiter, asks_by = string.match(entry, ENTRY)
    if waiter and rests(asks_by, now) then
      redis.call('PUBLISH', 'dl:2:ch:' .. waiter, '0 0 0 ' .. key)
    end
  end
end

-- They do not hear, but keep their places in front until they are stale.
local function put_back(deaf)
  if #deaf > 0 then
    redis.call('LPUSH', KEYS[3], unpack(deaf))
    redis.call('PEXPIRE', KEYS[3], QUEUE_TTL_MS)
  end
end
