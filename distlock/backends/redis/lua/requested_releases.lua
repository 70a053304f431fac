-- Requested releases. This file follows hold.lua.
--
-- The tokens whose release was requested, each between two spaces, are in a string beside the hold, KEYS[1]. They are
-- not in the hold itself, because older versions would take such a hold for another program's value.

local WANTED = KEYS[1] .. ':wanted'

-- Return whether the release of *owner*'s hold was requested.
local function is_wanted(owner)
  local tokens = redis.pcall('GET', WANTED)
  return type(tokens) == 'string' and string.find(tokens, ' ' .. owner .. ' ', 1, true) ~= nil
end
