-- Which holds are wanted back: it stands behind hold.lua in the scripts that write that, or look.
--
-- Beside the hold, KEYS[1], stands a string for a while: the tokens that are wanted back, each between two spaces. The
-- hold itself has no room for it: older versions would take it for somebody else's.

local WANTED = KEYS[1] .. ':wanted'

-- Whether the hold of *owner* is.
local function is_wanted(owner)
  local tokens = redis.pcall('GET', WANTED)
  return type(tokens) == 'string' and string.find(tokens, ' ' .. owner .. ' ', 1, true) ~= nil
end
