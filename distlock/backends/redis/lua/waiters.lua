-- The waiters in the queue. This file follows hold.lua.

-- The pattern of a queue entry. Its span is a number for an exclusive lock, 0 to read, and "3/10" for 3 of 10 permits.
local ENTRY = '^(%S+) (%d+) ([%d/]+) (%d+) (.*)$'
-- A waiter whose poll is overdue by more than this is dead.
local STALE_MS = 3000
-- A waiter that polls within this time needs no notification.
local SOON_MS = 1000
-- In a queue that moves fast, a waiter this many places behind the first is notified, too: the ones before it may hang.
local BEHIND = 8

local function lives(polls_by, now)
  return now / 1000 - tonumber(polls_by) <= STALE_MS
end

local function polls_late(polls_by, now)
  return tonumber(polls_by) - now / 1000 > SOON_MS
end

-- Have the next waiter poll, by a push with the poll number 0. In a long queue that moves fast, a waiter gets to the
-- front before its long poll interval is over. If the process that got the lock hangs, no waiter would notice that
-- before its next poll. A waiter a few places behind is notified, too, so that its interval gets short: the waiters
-- before it may all hang.
local function notify_next(now)
  local line = redis.call('LRANGE', KEYS[3], 0, BEHIND)
  for _, entry in ipairs({line[1] or '', line[1 + BEHIND] or ''}) do
    local waiter, polls_by = string.match(entry, ENTRY)
    if waiter and polls_late(polls_by, now) then
      redis.call('PUBLISH', 'dl:2:ch:' .. waiter, '0 0 0 ' .. key)
    end
  end
end

-- Put waiters that do not listen back to the front, where they stay until they are dead.
local function put_back(deaf)
  if #deaf > 0 then
    redis.call('LPUSH', KEYS[3], unpack(deaf))
    redis.call('PEXPIRE', KEYS[3], QUEUE_TTL_MS)
  end
end
