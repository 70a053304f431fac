-- Make a latch, count it down, delete it, or look at it.
--
-- KEYS     1 latch    hash: maker, total, left, ttl in ms, made (the time); and the amount of each part that
--                    was counted
--          2 watched  set of the processes to notify when the latch is opened or deleted
-- ARGV     1 'make', 'count', 'delete' or 'look'    2 key, for pushes
--          make   3 maker    4 total    5 ttl, ms
--          count  3 part     4 amount    5 the life to count, "<maker>@<made>"; '': any
--          delete 3 the life to delete; '': any
--          look   3 the process, to watch the latch; '': don't
-- Returns  {maker, total, left, remaining lifetime in ms, life}, or {} if there is no such latch. 'delete' returns the
--          latch that it has deleted

-- Processes that watch a latch look at it again long before this.
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
    -- Another program has removed the lifetime: restore it.
    redis.call('PEXPIRE', KEYS[1], ttl)
    rest = tonumber(ttl)
  end
  return {maker, tonumber(total), tonumber(left), rest, maker .. '@' .. (made or '')}, ttl
end

local function notify()
  for _, process in ipairs(redis.call('SMEMBERS', KEYS[2])) do
    redis.call('PUBLISH', 'dl:2:ch:' .. process, '0 0 0 ' .. key)
  end
  redis.call('DEL', KEYS[2])
end

local latch, ttl = alive()
if what == 'make' and not latch then
  -- A key without a maker was written by another program.
  if redis.call('EXISTS', KEYS[1]) == 1 then
    error('FOREIGN')
  end
  -- A maker that repeats its request may make another life after the first one was deleted. The times differ.
  local made = table.concat(redis.call('TIME'), '.')
  redis.call('HSET', KEYS[1], 'maker', ARGV[3], 'total', ARGV[4], 'left', ARGV[4], 'ttl', ARGV[5], 'made', made)
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  return {ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[3] .. '@' .. made}
end
local life = what == 'count' and ARGV[5] or what == 'delete' and ARGV[3] or ''
-- The caller's life is over.
if not latch or life ~= '' and life ~= latch[5] then
  return {}
end
if what == 'count' and latch[3] > 0 and redis.call('HSETNX', KEYS[1], ARGV[3], ARGV[4]) == 1 then
  latch[3], latch[4] = math.max(0, latch[3] - tonumber(ARGV[4])), tonumber(ttl)
  redis.call('HSET', KEYS[1], 'left', string.format('%d', latch[3]))
  redis.call('PEXPIRE', KEYS[1], ttl)
  if latch[3] == 0 then
    notify()
  end
elseif what == 'delete' then
  redis.call('DEL', KEYS[1])
  notify()
elseif what == 'look' and ARGV[3] ~= '' and latch[3] > 0 then
  redis.call('SADD', KEYS[2], ARGV[3])
  redis.call('PEXPIRE', KEYS[2], WATCHED_MS)
end
return latch
