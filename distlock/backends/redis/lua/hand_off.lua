-- The hand-off to the next process. This file follows shared_hold.lua.

-- A script blocks the server. So a long queue of dead waiters is cleared by several calls.
local MAX_SKIPS = 64
local MAX_DEAF = 16

-- Write the remnant of a hold behind which nobody waits. It is not needed if the counter is pinned.
local function write_remnant(number, following)
  if is_pinned(following) then
    redis.call('DEL', KEYS[1])
    return
  end
  -- Not less than SHORT_MS: the hold may have begun with a longer ttl than that of its last reader.
  local lifetime = math.max(SHORT_MS, math.min(ttl, REMNANT_MS))
  redis.call('SET', KEYS[1], number .. ' ' .. following, 'PX', digits(lifetime))
end

-- Grant the free lock to the first living waiter; for readers and permits, also to those behind it that fit in. Returns
-- the waiter's token and number; or nil, whether the whole queue was read, and whether it is empty now. *mine*, our own
-- token, gets no push, and *lifetime*. Others get a push, and the window to acknowledge. *following*: the <next> of the
-- previous hold, if known.
local function hand_off(now, following, mine, lifetime)
  local deaf, seen, granted, winner, number = {}, false, true, nil, nil
  for _ = 1, MAX_SKIPS do
    local entry = redis.call('LPOP', KEYS[3])
    if not entry then
      seen = true
      break
    end
    local waiter, polls_by, wish, poll, owner = string.match(entry, ENTRY)
    if owner and lives(polls_by, now) then
      if string.find(wish, '/', 1, true) then
        put_back({entry})
        redis.call('DEL', HOLDERS)
        return admit(now, digits(now), mine, lifetime) and mine or nil
      end
      local enters, reads = owner == mine, wish == '0'
      local lease = enters and lifetime or window
      -- Grant first, and push then: a waiter may begin when it gets the push, but a grant may be refused.
      if reads then
        granted, number = pcall(open, owner, lease, '+', now, following)
        poll = '0'
      else
        granted, number = pcall(grant, owner, tonumber(wish), lease, '+', now, following)
      end
      if not granted then
        -- Another program wrote the counter. All waiters keep their places.
        table.insert(deaf, 1, entry)
        break
      end
      local push = poll .. ' ' .. number .. ' ' .. digits(window) .. ' ' .. key
      if enters or redis.call('PUBLISH', 'dl:2:ch:' .. waiter, push) > 0 then
        winner = owner
        if reads and admit(now, nil, mine, lifetime) then
          winner = mine
        elseif not reads and not enters and polls_late(polls_by, now) then
          notify_next(now)
        end
        break
      end
      -- The waiter does not listen: it is dead, or about to connect again.
      if #deaf < MAX_DEAF then
        table.insert(deaf, 1, entry)
      end
      -- The waiter did not get the push, so the next one may get the same numbers.
      following = following or '0' .. number
    end
  end
  put_back(deaf)
  if winner then
    return winner, number
  end
  if #deaf > 0 or not seen then
    -- Waiters are left, so no remnant is written: it would say that nobody waits.
    redis.call('DEL', KEYS[1])
    if granted and following then
      -- Without a remnant, the counter has to say which numbers were used.
      write_counter(tonumber(following), now)
    end
  end
  if not granted then
    error(number, 0)
  end
  return nil, seen, seen and #deaf == 0
end

-- Hand off after a hold with this number and <next> was deleted. Write its remnant if nobody waits.
local function hand_off_or_leave(now, number, following)
  local _, _, nobody = hand_off(now, following)
  if nobody and following then
    write_remnant(number, following)
  end
end
