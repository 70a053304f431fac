"""Joining: a holder takes the next waiter along, who shares its grant and its fence.

So the callers of one process that wait for one name are carried out under one hold, as one batch:
`distlock.web` makes one transaction of it. They are taken from the head of the waiting room, so nobody is
passed over.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from distlock.engine.critical_section import CriticalSection
from distlock.engine.hold import TURN
from distlock.engine.name_grant import NameGrant
from distlock.engine.room import Rooms, Waiter
from distlock.engine.steps import Steps
from distlock.terms import Seat


class SharedGrant(NameGrant):
    """Of a caller that was taken along. The hold is given back by the one that was granted it."""

    __slots__ = ()

    def _take_along(self, batch: object) -> bool:
        return False

    def lift(self, name: str, number: int) -> bool:
        return False

    def _release(self, until: float = math.inf) -> Steps[None]:
        self.end()
        yield from ()

    def _let_go(self, error: BaseException) -> None:
        self.end()


class Joining:
    def __init__(self, section: CriticalSection, now: Callable[[], float], rooms: Rooms) -> None:
        self._section = section
        self._now = now
        self._rooms = rooms

    def is_followed(self, grant: NameGrant) -> bool:
        """Whether the next waiter could be taken along just now."""
        with self._section.mutex:
            return self._next(grant, self._now()) is not None

    def take_along(self, grant: NameGrant, batch: object) -> bool:
        """Let the next waiter share *grant*, in *batch*, and wake it. False: there is none that may."""
        with self._section.mutex:
            self._section.catch_up()
            now = self._now()
            if (found := self._next(grant, now)) is None:
                return False
            waiter, seat = found
            hold, room = grant._hold, grant._hold.room
            waiter.grant = SharedGrant(grant._grantor, hold, grant.name, grant.fence, now, waiter.terms)
            seat.batch = batch
            self._rooms.leave(waiter)
            self._rooms.admission.granted(room, now, waited=True)
            # A batch is a turn: the next one is another process's, if any wants it.
            hold.turn_ends = now
            waiter.gate.wake()
            return True

    def _next(self, grant: NameGrant, now: float) -> tuple[Waiter, Seat] | None:
        hold = grant._hold
        if not hold.is_out(grant) or hold.waiter is None or grant.released or hold.lost:
            return None
        if not hold.acknowledged:
            return None
        if now >= min(grant.since + TURN, hold.deadline - hold.ask.ttl / 3):
            return None
        waiter, mine = self._rooms.first(hold.room), hold.waiter.terms.seat
        if waiter is None or mine is None or (seat := waiter.terms.seat) is None or seat.key != mine.key:
            return None
        return waiter, seat
