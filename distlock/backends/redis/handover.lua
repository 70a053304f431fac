-- The hand-over: it stands in the scripts that may give the lock to the next process, behind shared.lua.

-- A script blocks the server: a long queue of dead waiters is cleared over several calls.
local MAX_SKIPS = 64
local MAX_DEAF = 16

-- Give the free lock to the first waiter that lives; of readers and for permits, to those behind it, too. Returns its
-- token and number; or nil, and whether the whole queue was seen. *mine* needs no push and gets *lifetime*; another
-- gets a push, and the window to acknowledge.
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
    end
  end
  put_back(deaf)
  if winner then
    return winner, number
  end
  if #deaf > 0 or not seen then
    -- Others wait: what is left of a hold would say that nobody does.
    redis.call('DEL', KEYS[1])
  end
  if not granted then
    error(number, 0)
  end
  return nil, seen
end
