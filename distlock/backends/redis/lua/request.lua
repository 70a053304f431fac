-- Request the lock, poll for it, or acknowledge it. Answers that do not need the queue are given here, and the others in
-- request_slow_path.lua.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua, and
--          9 the number of the poll, which grows within the process. The push that hands the lock off echoes it
--          10 the queue entry of this process, or ''. After a '?' the entry is uncertain
-- Returns  as in answers.lua

local wait, known = ARGV[7] == '1', ARGV[10]
local owner, number, following, others = holder()
if owner == token then
  extend()
  return {token, HELD, number}
end
if owner == '' then
  return {token, FOREIGN}
end
local now = nil
if not owner then
  now = clock()
  if following or redis.call('LLEN', KEYS[3]) == 0 then
    return {token, HELD, grant(token, span, ttl, '-', now, following)}
  end
end
