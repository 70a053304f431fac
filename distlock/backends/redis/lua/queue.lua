-- The queue entry of a process, and its poll interval.

-- Poll intervals, ms: for the first waiters POLL_MS, or less; for others POLL_PER_PLACE_MS for each process before them,
-- up to LONGEST_POLL_MS. Waiters get a push when it is their turn, so a crowd need not poll often.
local SHORTEST_POLL_MS, POLL_MS, POLL_PER_PLACE_MS, LONGEST_POLL_MS = 50, 1000, 20, 20000

-- Return the poll interval of a waiter with *place* processes before it.
local function interval_of(place)
  if place == 0 then
    -- If the push is lost, the first waiter polls before its hold ends with the window, unless the window is shorter
    -- than SHORTEST_POLL_MS.
    return math.min(POLL_MS, math.max(window, SHORTEST_POLL_MS))
  end
  return math.min(math.max(POLL_MS, place * POLL_PER_PLACE_MS), LONGEST_POLL_MS)
end

-- Return the entry. The time of the next poll is never earlier than in the entry before: see notify_next.
local function entry_text(now, known, interval)
  local said = tonumber(string.match(known, '^%S+ (%d+)') or 0)
  local polls_by = digits(math.max(now / 1000 + interval, said))
  return process .. ' ' .. polls_by .. ' ' .. ARGV[6] .. ' ' .. ARGV[9] .. ' ' .. token
end

-- Return the place of this process in the queue, or false if it has none. *known*: its entry, as far as the process
-- knows; after a '?' that is uncertain, because an answer was lost.
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

-- Join the queue, or keep the place in it. The entry gets the newest token, because a process has one request at a
-- time: an older one was given up. Returns the poll interval, the entry, and whether the queue is new.
local function queue(now, known)
  local place = find(known)
  if place then
    local interval = interval_of(place)
    local entry = entry_text(now, known, interval)
    -- PEXPIRE is allowed even when the server is out of memory. After it the server allows LSET, too. A new waiter is
    -- refused by RPUSH, before anything has changed.
    redis.call('PEXPIRE', KEYS[3], QUEUE_TTL_MS)
    redis.call('LSET', KEYS[3], place, entry)
    return interval, entry, false
  end
  local entry = entry_text(now, known, POLL_MS)
  local length = redis.call('RPUSH', KEYS[3], entry)
  local interval = interval_of(length - 1)
  if interval > POLL_MS then
    entry = entry_text(now, known, interval)
    redis.call('LSET', KEYS[3], -1, entry)
  end
  if length == 1 or interval > POLL_MS then
    redis.call('PEXPIRE', KEYS[3], QUEUE_TTL_MS)
  end
  return interval, entry, length == 1
end
