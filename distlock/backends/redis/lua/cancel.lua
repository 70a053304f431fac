-- Leave the queue, unless the hold has come already. Being one script, it cannot race with a hand-off.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua, and
--          9 what this ask has in the queue: its entry, '' for nothing, '?' if its process does not know
-- Returns  {token, 1}  the hold is ours, is kept and starts its lifetime anew
--          {token, 0}  it is not, and will not be

local owner, number, following = holder()
if owner == token then
  extend()
  return {token, 1}
end
local now, permits = clock(), owner == PERMITS and number
if shares(owner) then
  look(now, permits and tonumber(following) or 0)
  if keep(member(ARGV[6], token), now, permits) then
    return {token, 1}
  end
end
local known = ARGV[9]
if known == '?' then
  -- More than one where a request was overtaken by its own repetition.
  for _, entry in ipairs(redis.call('LRANGE', KEYS[3], 0, -1)) do
    if string.match(entry, '%S*$') == token then
      redis.call('LREM', KEYS[3], 1, entry)
    end
  end
elseif known ~= '' then
  redis.call('LREM', KEYS[3], 1, known)
end
if shares(owner) then
  -- Those behind it may fit in where it did not.
  admit(now, permits)
elseif not owner and not following and redis.call('LLEN', KEYS[3]) > 0 then
  pass_on(now)
end
return {token, 0}
