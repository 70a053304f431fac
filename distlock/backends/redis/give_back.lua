-- The first half of a release. Nearly always the hold is ours, has the numbers that we know, and nobody waits. So what
-- is left of it is written before it is read, in one command, and hold.lua is not even begun.

local left, was = ARGV[9], nil
if left ~= '' then
  was = redis.pcall('SET', KEYS[1], left, 'KEEPTTL', 'GET')
  if was == left .. ' - ' .. ARGV[8] then
    return {ARGV[8], 1}
  end
end
