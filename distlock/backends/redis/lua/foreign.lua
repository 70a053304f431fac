-- Return the keys of the lock whose values another program wrote, and the hold's key if it has no lifetime. Called
-- after another script has found such a value.
--
-- KEYS     as in hold.lua
-- ARGV     as in hold.lua
-- Returns  {token, key, ...}

local answer = {token}

local function look(name, fits, ...)
  local found = redis.pcall(...)
  if type(found) == 'table' and found.err or found and not fits(found) then
    table.insert(answer, name)
  end
end

local function anything() return true end

local function ends_by_itself(hold)
  return (string.match(hold, HOLD) or string.match(hold, REMNANT)) and redis.call('PTTL', KEYS[1]) ~= -1
end

look(KEYS[1], ends_by_itself, 'GET', KEYS[1])
look(KEYS[2], tonumber, 'GET', KEYS[2])
look(KEYS[3], anything, 'LLEN', KEYS[3])
look(KEYS[1] .. ':holders', anything, 'ZCARD', KEYS[1] .. ':holders')
return answer
