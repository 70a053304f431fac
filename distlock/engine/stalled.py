"""Waiters of event loops that stand still: long after its time-out, none of them keeps the others waiting.

A loop that is stopped, but not closed, may go on at any time. What it waited for then is a time-out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from distlock.engine import leading
from distlock.engine.room import Waiter
from distlock.engine.steps import Gate

if TYPE_CHECKING:
    from distlock.engine.machine import Engine

#: Seconds after its time-out in which a busy event loop may still see to its waiter.
GRACE = 2.0


class Stalled:
    """The engine and its keeper call it under the engine's mutex."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: Those that may stand still, until they have their answer.
        self._watched: set[Waiter] = set()

    def watch(self, waiter: Waiter) -> None:
        if waiter.deadline != math.inf:
            self._watched.add(waiter)
            self._engine.keeper.wake_before(waiter.deadline + GRACE)

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
                self._engine.turns.drop(waiter.grant)
            elif waiter in waiter.room.queue:
                waiter.passed_over = True
                leading.give_up(self._engine, waiter)
