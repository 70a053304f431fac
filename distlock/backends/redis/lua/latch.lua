-- A latch: make it, count it down, delete it, look at it.
--
-- KEYS     1 latch    hash: maker, total, left, ttl in ms, made (when); and for each part that was
--                    counted, by how much
--          2 watched  set of the processes that are told when it opens, or is deleted
-- ARGV     1 'make', 'count', 'delete' or 'look'    2 key, as the push tells it
--          make   3 maker    4 total    5 ttl, ms
--          count  3 part     4 by how much    5 the life that is counted, "<maker>@<made>"; '': any
--          delete 3 the life that is deleted; '': any
--          look   3 process, or ''
-- Returns  {maker, total, left, ms that it has left, life}, or {} where there is none. Of one that it deletes: what it was

-- Those that wait look again long before that.
local WATCHED_MS = 60000

local what, key = ARGV[1], ARGV[2]

local function alive()
  local fields = redis.call('HMGET', KEYS[1], 'maker', 'total', 'left', 'ttl', 'made')
  local maker, total, left, ttl, made = unpack(fields)
  if not maker then
    return nil
  end
  if not (total and left and ttl) then
    error('FOREIGN')
  end
  local rest = redis.call('PTTL', KEYS[1])
  if rest < 0 then
    -- Somebody took its lifetime away, and it would stay for ever.
    redis.call('PEXPIRE', KEYS[1], ttl)
    rest = tonumber(ttl)
  end
  return {maker, tonumber(total), tonumber(left), rest, maker .. '@' .. (made or '')}, ttl
end

local function tell()
  for _, process in ipairs(redis.call('SMEMBERS', KEYS[2])) do
    redis.call('PUBLISH', 'dl:2:ch:' .. process, '0 0 0 ' .. key)
  end
  redis.call('DEL', KEYS[2])
end

local latch, ttl = alive()
if what == 'make' and not latch then
  -- What has no maker is not ours: a hash of somebody else.
  if redis.call('EXISTS', KEYS[1]) == 1 then
    error('FOREIGN')
  end
  -- A maker that repeats its request may make another life after the first one was deleted. The time tells them apart.
  local made = table.concat(redis.call('TIME'), '.')
  redis.call('HSET', KEYS[1], 'maker', ARGV[3], 'total', ARGV[4], 'left', ARGV[4], 'ttl', ARGV[5], 'made', made)
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  return {ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[3] .. '@' .. made}
end
local life = what == 'count' and ARGV[5] or what == 'delete' and ARGV[3] or ''
-- A later life is none of the caller's business.
if not latch or life ~= '' and life ~= latch[5] then
  return {}
end
if what == 'count' and latch[3] > 0 and redis.call('HSETNX', KEYS[1], ARGV[3], ARGV[4]) == 1 then
  latch[3], latch[4] = math.max(0, latch[3] - tonumber(ARGV[4])), tonumber(ttl)
  redis.call('HSET', KEYS[1], 'left', string.format('%d', latch[3]))
  redis.call('PEXPIRE', KEYS[1], ttl)
  if latch[3] == 0 then
    tell()
  end
elseif what == 'delete' then
  redis.call('DEL', KEYS[1])
  tell()
elseif what == 'look' and ARGV[3] ~= '' and latch[3] > 0 then
  redis.call('SADD', KEYS[2], ARGV[3])
  redis.call('PEXPIRE', KEYS[2], WATCHED_MS)
end
return latch
