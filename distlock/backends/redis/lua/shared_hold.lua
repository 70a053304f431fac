-- Holds that several processes share: readers and permits. This file follows waiters.lua.
--
-- The hold, KEYS[1], has the word READERS or PERMITS instead of a token, which no process takes for its own. It lives as
-- long as the last lease. For permits it has no block of numbers, and <next> is the number of permits that are held.
-- Beside it is a sorted set: "<permits> <token>", with 0 permits for a reader -> the time when its lease ends, ms.

local READERS, PERMITS = 'readers', 'permits'
local HOLDERS = KEYS[1] .. ':holders'
-- A script blocks the server. So at most this many waiters enter at once. When one of them polls, more enter.
local MAX_RUN = 16
-- The longest lifetime of a remnant.
local REMNANT_MS = 30000

-- The number of permits that are held by leases that have not ended, and the number of ended leases that are still in
-- the sorted set.
local out, ended = 0, 0

local function shares(owner)
  return owner == READERS or owner == PERMITS
end

-- Return the member of the sorted set for a request with the span *wish*, which after a downgrade is a writer's.
local function member(wish, owner)
  return (string.match(wish, '^(%d+)/') or '0') .. ' ' .. owner
end

local function permits_of(member)
  return tonumber(string.match(member, '^%d+'))
end

local function owner_of(member)
  return string.match(member, '%S*$')
end

-- Return the tokens of all holders. *owner*: the token in the hold, or the word that stands instead of it.
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

-- Set *out* and *ended*. *written*: the number of permits in the hold. Returns whether the lease of the member *mine*
-- has ended.
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

-- Return whether a request with the span *wish* is compatible with the holds.
local function fits(wish)
  local permits, limit = string.match(wish, '^(%d+)/(%d+)$')
  if permits then
    return out + tonumber(permits) <= tonumber(limit)
  end
  return wish == '0'
end

-- Remove ended leases, and update the lifetimes of both keys. *permits*: the number of the hold if it is of permits,
-- else nil. Returns whether any holder is left.
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
    -- Pin before PEXPIREAT, which deletes the hold if the last lease has ended just now.
    if tonumber(last) - now / 1000 < SHORT_MS then
      pin()
    end
    redis.call('PEXPIREAT', KEYS[1], last)
  end
  redis.call('PEXPIREAT', HOLDERS, last)
  return true
end

-- Restart the lease of the member *one*. Returns false, and changes nothing, if there is no such lease or it has ended.
-- PEXPIRE comes first: a server that is out of memory allows it, and then ZADD, which it would refuse otherwise.
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

-- Begin a hold of readers, with *owner* as the first. The other arguments and the result are as for grant.
local function open(owner, lifetime, others, now, following)
  local number = grant(READERS, 1, lifetime, others, now, following)
  -- The set of former readers may be left over, if somebody has deleted their hold.
  redis.call('DEL', HOLDERS)
  redis.call('ZADD', HOLDERS, ms(now, lifetime), member('0', owner))
  redis.call('PEXPIREAT', HOLDERS, ms(now, lifetime))
  return number
end

-- Let the first waiters in, as long as they fit. *mine*, our own token, gets no push, and *lifetime*. Others get a push,
-- and the window to acknowledge. Returns whether *mine* has entered. *permits*: as for settle.
local function admit(now, permits, mine, lifetime)
  local inside, deaf, gone, late, found = {}, {}, 0, false, false
  for _, entry in ipairs(redis.call('LRANGE', KEYS[3], 0, MAX_RUN - 1)) do
    local waiter, polls_by, wish, _, owner = string.match(entry, ENTRY)
    if owner and lives(polls_by, now) then
      if not fits(wish) then
        break
      end
      local enters = owner == mine
      found = found or enters
      if enters or redis.call('PUBLISH', 'dl:2:ch:' .. waiter, '0 0 0 ' .. key) > 0 then
        out = out + permits_of(member(wish, owner))
        table.insert(inside, ms(now, enters and lifetime or window))
        table.insert(inside, member(wish, owner))
        late = late or polls_late(polls_by, now)
      else
        -- The waiter does not listen: it is dead, or about to connect again.
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
      notify_next(now)
    end
  end
  return found
end
