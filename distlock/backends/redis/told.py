"""What a reply to a request tells: whether the lock is ours, and when to ask again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from distlock import clock
from distlock.backends.base import PERMIT, READ, Acquired, Busy, LockRequest, Queued
from distlock.backends.redis.address import Address
from distlock.backends.redis.failures import unending
from distlock.backends.redis.listener import Listener
from distlock.backends.redis.pushes import Pushes
from distlock.backends.redis.scripts import hold_key

#: The kinds of replies, of ``request.lua``.
HELD, BUSY, UNENDING, FOREIGN = 1, 3, 4, 5

#: So much of its rest a waiter waits while it is not subscribed, so that there are no hints at all.
_DEAF = 0.1
#: How long after the end of another's hold to ask for it, seconds: spread, because several waiters do, …
_AFTER = (0.005, 0.05)
#: … all those in front, who rest no longer than so many milliseconds.
_IN_FRONT = 1000
#: Behind a lock that is free, but whose queue was too long to clear in one call, seconds.
_UNDECIDED = 0.01


class Told:
    """For the requests of one process."""

    def __init__(self, address: Address, pushes: Pushes, listener: Listener | None) -> None:
        self._address = address
        self._pushes = pushes
        self._listener = listener

    def by(self, reply: Sequence[Any], request: LockRequest) -> Acquired | Queued | Busy:
        """What *reply*, of any kind but `FOREIGN`, says to *request*. Raises `BackendUnavailable`."""
        if reply[1] == HELD:
            self._pushes.forget(request)
            request.number = int(reply[2])
            if request.mode == READ:
                return Acquired(request.number, request.ttl, followed=reply[3] > 0)
            if request.mode == PERMIT:
                return Acquired(request.number, request.ttl, other_limit=int(reply[4]))
            return Acquired(request.number, request.ttl)
        if reply[1] == BUSY:
            return Busy()
        if reply[1] == UNENDING:
            raise unending(self._address, hold_key(request.key))
        self._pushes.queued(request, reply[4])
        listens = self._listener is not None and self._listener.subscribed
        answer = Queued(_poll(int(reply[2]), int(reply[3]), listens))
        if self._listener is not None and not request.prompt:
            self._listener.stay_until(clock.now() + answer.poll)
        return answer


def _poll(pttl: int, rest: int, subscribed: bool) -> float:
    """When to ask again, seconds, behind a hold that lives for *pttl* more milliseconds.

    *rest*: after how many milliseconds a waiter at our place has to, if it hears of its turn.
    """
    if pttl == -2:
        return _UNDECIDED
    poll = rest / 1000 if subscribed else rest / 1000 * _DEAF
    spread = random.random()  # noqa: S311 - spreads clients, hides nothing
    if pttl >= 0 and rest <= _IN_FRONT:
        low, high = _AFTER
        after = pttl / 1000 + low + (high - low) * spread
        if after < poll:
            return after
    return poll * (0.75 + 0.25 * spread)
