-- The middle of a request, where somebody else holds: whether that ends. It needs nothing of the queue, so that one
-- that does not wait is told soon.

-- For how long a hold of unknown ttl lives at least, ms. Its holder renews it every third of that, if it lives; ours
-- may be shorter, and over before.
local LONGEST_TTL_MS = 600000

-- Somebody took the lifetime of a hold away. A holder that lives renews it; what no process of ours wrote is left
-- alone. Returns whether it ends now.
local function give_an_end(owner)
  if owner == 'readers' then
    -- See shared.lua: the last of their leases is known.
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
  redis.call('PEXPIRE', KEYS[1], digits(math.max(ttl, LONGEST_TTL_MS)))
  return true
end

local left = -1
-- Who joins others leaves it to them, and to its own next ask, to see when the hold ends.
if owner and (not wait or known ~= '' or others == '-') then
  left = redis.call('PTTL', KEYS[1])
  if left == -1 then
    return {token, give_an_end(owner) and UNENDING or FOREIGN}
  end
  if not wait then
    return {token, BUSY}
  end
end
