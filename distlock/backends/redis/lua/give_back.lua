-- The first half of a release. Nearly always the hold is ours, has the numbers that we know, and nobody waits. So what
-- is left of it is written before it is read, in one command, and hold.lua is not even begun.

-- What is left lives for the rest of the ttl, and no longer than this.
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
