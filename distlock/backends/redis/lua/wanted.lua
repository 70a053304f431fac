-- Requested releases. It follows hold.lua.
--
-- They are in a string beside the hold, KEYS[1]: the tokens whose release was requested, each between two spaces. They
-- are not in the hold itself, because older versions would take it for another program's value.

local WANTED = KEYS[1] .. ':wanted'

-- Return whether the release of *owner*'s hold was requested.
local function is_wanted(owner)
  local tokens = redis.pcall('GET', WANTED)
  return type(tokens) == 'string' and string.find(tokens, ' ' .. owner .. ' ', 1, true) ~= nil
end
