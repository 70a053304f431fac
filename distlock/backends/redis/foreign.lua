-- Which keys of the lock hold something that is not ours. Asked only where another script has stumbled over one.
--
-- KEYS     as in handover.lua
-- ARGV     as in handover.lua
-- Returns  {token, key, ...}

local answer = {token}

local function look(number, fits, ...)
  local found = redis.pcall(...)
  if type(found) == 'table' and found.err or found and not fits(found) then
    table.insert(answer, KEYS[number])
  end
end

local function anything() return true end

local function ends_by_itself(hold)
  return string.match(hold, HOLD) and redis.call('PTTL', KEYS[1]) ~= -1
end

look(1, ends_by_itself, 'GET', KEYS[1])
look(2, tonumber, 'GET', KEYS[2])
look(3, anything, 'LLEN', KEYS[3])
look(4, anything, 'HGET', KEYS[4], process)
return answer
