"""Waiters of event loops that stand still: long after its time-out, none of them keeps the others waiting.

A loop that is stopped, but not closed, may go on at any time. What it waited for then is a time-out.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from distlock.engine.name_grant import NameGrant
from distlock.engine.room import Waiter
from distlock.engine.steps import Gate

#: Seconds after its time-out in which a busy event loop may still see to its waiter.
GRACE = 2.0


class Stalled:
    """The engine and its keeper call it under the engine's mutex.

    *give_up* and *drop* do for one of them what it should have done itself.
    """

    def __init__(self, give_up: Callable[[Waiter], None], drop: Callable[[NameGrant], None]) -> None:
        self._give_up = give_up
        self._drop = drop
        #: Those that may stand still, until they have their answer.
        self._watched: set[Waiter] = set()

    def watch(self, waiter: Waiter) -> float:
        """Returns when it has to be passed over, if it stands still."""
        self._watched.add(waiter)
        return waiter.deadline + GRACE

    def answered(self, waiter: Waiter) -> None:
        self._watched.discard(waiter)

    def forget(self, gate: Gate | None = None) -> None:
        """The caller behind *gate* is gone; None: all are."""
        self._watched = {one for one in self._watched if gate is not None and one.gate is not gate}

    def due(self, now: float) -> float:
        """When the next one may have to be passed over."""
        # One that is late, and still has a call under way, is looked at again.
        return min((max(one.deadline, now) + GRACE for one in self._watched), default=math.inf)

    def pass_over(self, now: float) -> None:
        """Give up on behalf of those that should have done so themselves."""
        for waiter in [one for one in self._watched if now >= one.deadline + GRACE and not one.is_calling]:
            self._watched.discard(waiter)
            if waiter.grant is not None:
                waiter.passed_over = True
                self._drop(waiter.grant)
            elif waiter in waiter.room.queue:
                waiter.passed_over = True
                self._give_up(waiter)
