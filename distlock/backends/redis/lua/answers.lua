-- The answers to a request.
--
-- {token, 1, number}  held: the hold is acknowledged, and its lifetime has been restarted. Readers and permits also get
--                     the number of waiters, and permits another limit or 0: see permit.lua
-- {token, 2, pttl, interval, entry}  queued, as entry, behind a hold that lives for pttl ms (-1: unknown, -2: the lock
--                     is free). Poll again after interval ms
-- {token, 3}          busy: another process holds the lock
-- {token, 4}          busy, and the hold had no lifetime, so it was given one
-- {token, 5}          foreign: another program wrote the value of the key

local HELD, QUEUED, BUSY, UNENDING, FOREIGN = 1, 2, 3, 4, 5
