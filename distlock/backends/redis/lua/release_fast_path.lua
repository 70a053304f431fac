-- The beginning of the release of an exclusive hold. In the usual case the hold is ours, has the numbers that we know,
-- and nobody waits. So one command writes the remnant and reads the hold, and the script returns before hold.lua.

-- The remnant lives for the rest of the ttl, but at most this long.
local LONGEST_MS = 30000

local left, was = ARGV[9], nil
if left ~= '' then
  was = redis.pcall('SET', KEYS[1], left, 'KEEPTTL', 'GET')
  if was == left .. ' - ' .. ARGV[8] then
    if tonumber(ARGV[5]) > LONGEST_MS then
      redis.call('PEXPIRE', KEYS[1], LONGEST_MS)
    end
    return {ARGV[8], 1}
  end
end
