-- The hand-off: it stands in the scripts that may give the lock to the next process, behind shared.lua.

-- A script blocks the server: a long queue of dead waiters is cleared over several calls.
local MAX_SKIPS = 64
local MAX_DEAF = 16

-- Write what is left of a hold where nobody waits. A counter that is pinned says as much.
local function leave_rest(number, following)
  if is_pinned(following) then
    redis.call('DEL', KEYS[1])
    return
  end
  -- The hold may have been begun with a longer ttl than that of its last reader: see SHORT_MS.
  local lifetime = math.max(SHORT_MS, math.min(ttl, LEFT_MS))
  redis.call('SET', KEYS[1], number .. ' ' .. following, 'PX', digits(lifetime))
end

-- Give the free lock to the first waiter that lives; of readers and for permits, to those behind it, too. Returns its
-- token and number; or nil, whether the whole queue was seen, and whether it was empty. *mine* needs no push and gets
-- *lifetime*; another gets a push, and the window to acknowledge. *following*: the <next> of the hold before, if known.
local function pass_on(now, following, mine, lifetime)
  local deaf, seen, granted, winner, number = {}, false, true, nil, nil
  for _ = 1, MAX_SKIPS do
    local entry = redis.call('LPOP', KEYS[3])
    if not entry then
      seen = true
      break
    end
    local waiter, asks_by, wish, poll, owner = string.match(entry, ENTRY)
    if owner and lives(asks_by, now) then
      if string.find(wish, '/', 1, true) then
        put_back({entry})
        redis.call('DEL', HOLDERS)
        return admit(now, digits(now), mine, lifetime) and mine or nil
      end
      local enters, reads = owner == mine, wish == '0'
      local lease = enters and lifetime or window
      -- Granted before it is told: a waiter may begin on the push, and the grant may be refused.
      if reads then
        granted, number = pcall(open, owner, lease, '+', now, following)
        poll = '0'
      else
        granted, number = pcall(grant, owner, tonumber(wish), lease, '+', now, following)
      end
      if not granted then
        -- The counter is not ours. All that are in line keep their places.
        table.insert(deaf, 1, entry)
        break
      end
      local push = poll .. ' ' .. number .. ' ' .. digits(window) .. ' ' .. key
      if enters or redis.call('PUBLISH', 'dl:2:ch:' .. waiter, push) > 0 then
        winner = owner
        if reads and admit(now, nil, mine, lifetime) then
          winner = mine
        elseif not reads and not enters and rests(asks_by, now) then
          tell_next(now)
        end
        break
      end
      -- Nobody listens: dead, or about to connect again.
      if #deaf < MAX_DEAF then
        table.insert(deaf, 1, entry)
      end
      -- It was told nothing, so the next one gets the same numbers.
      following = following or '0' .. number
    end
  end
  put_back(deaf)
  if winner then
    return winner, number
  end
  if #deaf > 0 or not seen then
    -- Others wait: what is left of a hold would say that nobody does.
    redis.call('DEL', KEYS[1])
    if granted and following then
      -- So the counter says how far the numbers were used.
      write_counter(tonumber(following), now)
    end
  end
  if not granted then
    error(number, 0)
  end
  return nil, seen, seen and #deaf == 0
end

-- The same behind a hold that was deleted, which had this number and <next>. What is left of it is written only where
-- nobody waits, who would be passed over.
local function pass_on_or_leave(now, number, following)
  local _, _, nobody = pass_on(now, following)
  if nobody and following then
    leave_rest(number, following)
  end
end
