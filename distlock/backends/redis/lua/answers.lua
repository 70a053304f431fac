-- What is answered to a request.
--
-- {token, 1, number}  held: the lifetime starts anew, which is also the acknowledgement. To readers and for permits
--                     one number more: how many wait. For permits another: see permit.lua
-- {token, 2, pttl, rest, entry}  queued, as entry, behind a hold that lives that many ms (-1: nobody looked,
--                     -2: behind a free lock); it is worth asking again after rest ms
-- {token, 3}          somebody else's
-- {token, 4}          somebody else's, and would have been for ever: it has a lifetime now
-- {token, 5}          not one of our holds

local HELD, QUEUED, BUSY, UNENDING, FOREIGN = 1, 2, 3, 4, 5
