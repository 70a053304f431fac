-- The middle of a request, if another process holds the lock: check that its hold will end. A request that does not
-- wait is answered here, before the queue is read.

-- The least lifetime that is given to a hold whose ttl we don't know. A living holder renews the hold every third of
-- its own ttl, which may be longer than ours.
local RESTORED_TTL_MS = 600000

-- Give a hold a lifetime again, after another program has removed it. A living holder renews the hold. Returns false,
-- and changes nothing, if *owner* is no token of distlock.
local function restore_lifetime(owner)
  if owner == 'readers' then
    -- The hold lives as long as the last lease: see shared_hold.lua.
    local holders = KEYS[1] .. ':holders'
    local last = redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2]
    if last then
      redis.call('PEXPIREAT', KEYS[1], last)
      redis.call('PEXPIREAT', holders, last)
      return true
    end
  elseif not string.match(owner, '^%x+$') or (#owner ~= 32 and #owner ~= 48) then
    return false
  end
  redis.call('PEXPIRE', KEYS[1], digits(math.max(ttl, RESTORED_TTL_MS)))
  return true
end

local left = -1
-- A new request behind other waiters does not check: they have checked, and its own next poll will.
if owner and (not wait or known ~= '' or others == '-') then
  left = redis.call('PTTL', KEYS[1])
  if left == -1 then
    return {token, restore_lifetime(owner) and UNENDING or FOREIGN}
  end
  if not wait then
    return {token, BUSY}
  end
end
