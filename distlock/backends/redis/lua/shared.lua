-- What several have at once: it stands behind waiters.lua in the scripts that may let one of them in, or out.
--
-- The hold, KEYS[1], has a word in the place of a token, so that to all others it is held by somebody else. It lives
-- as long as the last lease. Of permits it has no block of numbers; <next> is how many are out.
-- Beside it stands a sorted set: "<permits> <token>", a reader's are 0, -> when its lease ends, ms.

local READERS, PERMITS = 'readers', 'permits'
local HOLDERS = KEYS[1] .. ':holders'
-- A script blocks the server: so many are let in at once. The first of them that asks lets in more.
local MAX_RUN = 16
-- What is left of a hold lives no longer.
local LEFT_MS = 30000

-- How many permits are out, of those whose leases have not ended; and how many of these leases are still written.
local out, ended = 0, 0

local function shares(owner)
  return owner == READERS or owner == PERMITS
end

-- How one that wants *wish* stands in the sorted set. A writer that becomes a reader does, too.
local function member(wish, owner)
  return (string.match(wish, '^(%d+)/') or '0') .. ' ' .. owner
end

local function permits_of(member)
  return tonumber(string.match(member, '^%d+'))
end

local function owner_of(member)
  return string.match(member, '%S*$')
end

-- The tokens of the hold of *owner*.
local function owners(owner)
  if not shares(owner) then
    return {owner}
  end
  local tokens = {}
  for _, one in ipairs(redis.call('ZRANGE', HOLDERS, 0, -1)) do
    table.insert(tokens, owner_of(one))
  end
  return tokens
end

local function ms(now, lifetime)
  return digits(math.floor(now / 1000) + lifetime)
end

-- See what is out. *written*: what the hold says. Returns whether the lease of *mine* is one that has ended.
local function look(now, written, mine)
  local lost = false
  local gone = redis.call('ZRANGEBYSCORE', HOLDERS, '-inf', ms(now, 0))
  out, ended = written, #gone
  for _, one in ipairs(gone) do
    out = out - permits_of(one)
    lost = lost or one == mine
  end
  return lost
end

-- Whether *wish* may enter beside those that are inside.
local function fits(wish)
  local permits, limit = string.match(wish, '^(%d+)/(%d+)$')
  if permits then
    return out + tonumber(permits) <= tonumber(limit)
  end
  return wish == '0'
end

-- Write until when both keys live. *permits*: the hold's number, if it is one of permits. Returns whether anybody is
-- left inside.
local function settle(now, permits)
  if ended > 0 then
    redis.call('ZREMRANGEBYSCORE', HOLDERS, '-inf', ms(now, 0))
  end
  local last = redis.call('ZRANGE', HOLDERS, -1, -1, 'WITHSCORES')[2]
  if not last then
    return false
  end
  if permits then
    redis.call('SET', KEYS[1], permits .. ' ' .. digits(out) .. ' + ' .. PERMITS, 'PXAT', last)
  else
    -- Before PEXPIREAT, which deletes what has ended just now.
    if tonumber(last) - now / 1000 < SHORT_MS then
      pin()
    end
    redis.call('PEXPIREAT', KEYS[1], last)
  end
  redis.call('PEXPIREAT', HOLDERS, last)
  return true
end

-- Start the lease of *one* anew, if it has not ended. PEXPIRE comes first, since a full server refuses the other.
local function keep(one, now, permits)
  local ends = redis.call('ZSCORE', HOLDERS, one)
  if not ends or tonumber(ends) <= math.floor(now / 1000) then
    return false
  end
  redis.call('PEXPIRE', KEYS[1], digits(ttl))
  redis.call('ZADD', HOLDERS, ms(now, ttl), one)
  settle(now, permits)
  return true
end

-- Begin a hold of readers, with *owner* as the first. As grant().
local function open(owner, lifetime, others, now, following)
  local number = grant(READERS, 1, lifetime, others, now, following)
  -- Somebody may have deleted the hold of former ones.
  redis.call('DEL', HOLDERS)
  redis.call('ZADD', HOLDERS, ms(now, lifetime), member('0', owner))
  redis.call('PEXPIREAT', HOLDERS, ms(now, lifetime))
  return number
end

-- Let in those in front that fit. *mine* needs no push and gets *lifetime*; the others get a push, and the window to
-- ask. Returns whether *mine* is among them. *permits*: as in settle.
local function admit(now, permits, mine, lifetime)
  local inside, deaf, gone, late, found = {}, {}, 0, false, false
  for _, entry in ipairs(redis.call('LRANGE', KEYS[3], 0, MAX_RUN - 1)) do
    local waiter, asks_by, wish, _, owner = string.match(entry, ENTRY)
    if owner and lives(asks_by, now) then
      if not fits(wish) then
        break
      end
      local enters = owner == mine
      found = found or enters
      if enters or redis.call('PUBLISH', 'dl:2:ch:' .. waiter, '0 0 0 ' .. key) > 0 then
        out = out + permits_of(member(wish, owner))
        table.insert(inside, ms(now, enters and lifetime or window))
        table.insert(inside, member(wish, owner))
        late = late or rests(asks_by, now)
      else
        -- Nobody listens: dead, or about to connect again.
        table.insert(deaf, 1, entry)
      end
    end
    gone = gone + 1
  end
  if gone > #deaf then
    redis.call('LPOP', KEYS[3], gone)
    put_back(deaf)
  end
  if #inside > 0 then
    redis.call('ZADD', HOLDERS, unpack(inside))
    settle(now, permits)
    if late then
      tell_next(now)
    end
  end
  return found
end
