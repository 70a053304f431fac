"""What this process says of itself to people who look: who holds what here, and who waits, and for how long.

The keeper says it, every few seconds, of what has lasted for longer than a moment. The way of a lock does
nothing for it.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Callable

from distlock.backends.base import Backend
from distlock.backends.inspectable import MOMENT, Announces, Row, inspectable
from distlock.engine.call import Call
from distlock.engine.critical_section import CriticalSection
from distlock.engine.holders import Holders
from distlock.engine.room import Room, Rooms
from distlock.engine.steps import Steps
from distlock.errors import LockError
from distlock.modes import EXCLUSIVE, PERMIT, READ, Mode
from distlock.terms import shown_where

logger = logging.getLogger("distlock")

#: Seconds between two rounds; longer where a round has much to look at.
PERIOD = 2.0
#: What is said is forgotten after so many periods without another round.
LIFE = 4
#: At most this share of a processor is spent on it.
SHARE = 0.02
#: How many keys are spoken of in one round at most, and, where that took too long, at the least, …
MANY, FEW = 10_000, 500
#: … and how long that may take, seconds: the keeper has holds to renew.
PATIENCE = 0.5


class Announcing:
    """The keeper plays its rounds, in its own."""

    def __init__(
        self, section: CriticalSection, backend: Backend, now: Callable[[], float], rooms: Rooms
    ) -> None:
        self._section = section
        seen = inspectable(backend)
        self._backend = seen if isinstance(seen, Announces) else None
        self._now = now
        self._rooms = rooms
        self.holders = Holders(self._backend, now)
        #: What there is to say beside the rooms; its argument is that of `row_of`.
        self.more: Callable[[float], list[Row]] = lambda at_epoch: []
        self.forget()

    def forget(self) -> None:
        """Nothing is said: at first, after a close, and in a forked child."""
        #: What stands there of each key; None: something may.
        self._said: dict[str, Row | None] = {}
        #: Since when nothing could be said; ``inf``: it can.
        self._failed_since = math.inf
        #: How many keys the next round speaks of at most.
        self._many = MANY
        self.holders.forget()
        #: When the next round is, at the earliest.
        self._next = 0.0
        self._period = PERIOD
        #: What has to be added to the engine's time to get seconds since 1970.
        self._at_epoch = 0.0

    def due(self, now: float) -> float:
        """Under the mutex: when the next round is."""
        if self._backend is None or not (self._said or self._rooms.by_key or self.more(0.0)):
            return float("inf")
        return max(self._next, now + MOMENT) if not self._said else self._next

    def is_due(self, now: float) -> bool:
        return self._backend is not None and now >= self._next

    def soon(self, now: float) -> float:
        """When there may be something to say of what begins now."""
        return float("inf") if self._backend is None else max(self._next, now + MOMENT)

    def put_off(self) -> None:
        """The lock service does not answer."""
        self._next = max(self._next, self._now() + self._period)

    def is_idle(self) -> bool:
        return not self._said

    def tick(self, until: float) -> Steps[None]:
        """A round that has to be over at *until*."""
        began = self._now()
        if self._backend is None or not self.is_due(began):
            return
        with self._section.mutex:
            rooms = list(self._rooms.by_key.values())
        if not rooms and not self._said and not self.more(0.0):
            return
        # Without the mutex: there may be a hundred thousand, and what changes meanwhile is said next time.
        at_epoch = time.time() - began
        if abs(at_epoch - self._at_epoch) > 1.0:
            # Else what was said would be news whenever the two clocks drift apart a little.
            self._at_epoch = at_epoch
        rows = {row.key: row for room in rooms if (row := row_of(room, began, self._at_epoch)) is not None}
        waits = list(rows.values())
        rows |= {row.key: row for row in self.more(self._at_epoch)}
        news = [row for key, row in rows.items() if self._said.get(key) != row]
        gone = [key for key in self._said if key not in rows]
        # A round that takes longer comes less often.
        self._period = max(PERIOD, (self._now() - began) / SHARE)
        self._next = self._now() + self._period
        if not rows:
            self.holders.forget()
        if not rows and not gone:
            return
        life = LIFE * self._period
        if not rows and began >= self._failed_since + life:
            # By now it is forgotten anyway.
            self.forget()
            return
        host, pid, until = socket.gethostname(), os.getpid(), min(until, self._now() + PATIENCE)
        if self._now() >= until:
            # A call that has no time left fails, and its connection is dropped.
            return
        many = min(MANY, self._many)
        all_of_it = len(news) <= many and len(gone) <= many
        news, gone = news[:many], gone[:many]
        dropped = set(gone)
        said = {key: row for key, row in self._said.items() if key not in dropped}
        try:
            goes_on = yield Call(self._backend.announce, host, pid, news, gone, life, until=until)
        except Exception as error:
            # Nobody's lock depends on it, so it may not delay a renewal, whatever it is.
            if not isinstance(error, LockError):
                logger.warning("What this process holds could not be told: %r", error, exc_info=True)
            # Which part of it arrived is unknown: all is said again, and taken back where it has ended.
            self._said = dict.fromkeys([*self._said, *(row.key for row in news)])
            self._failed_since = min(self._failed_since, began)
            if self._now() >= until:
                self._many = max(FEW, many // 4)
            return
        self._failed_since = math.inf
        if all_of_it:
            # Not before: a round that fails has the next ones say all of it again.
            self._many = 2 * many
        # What was forgotten is said again.
        self._said = {**(said if goes_on else {}), **{row.key: row for row in news}}
        yield from self.holders.look(waits, until)


def row_of(room: Room, now: float, at_epoch: float, moment: float = MOMENT) -> Row | None:
    """What there is to say of *room*; None: nothing that has lasted for *moment* seconds.

    *at_epoch*: what has to be added to the engine's time to get seconds since 1970.
    """
    held_at, held_since, waits_at, waiting_since, waiting = "", 0.0, "", 0.0, 0
    mode: Mode = EXCLUSIVE
    holding, limit = 0, 0
    holds = list(room.holds)
    grants = [grant for hold in holds for grant in hold.grants]
    eldest = min(grants, key=lambda grant: grant.since, default=None)
    if eldest is not None and now - eldest.since >= moment:
        held_at, held_since = shown_where(eldest.where), round(eldest.since + at_epoch, 1)
        mode = eldest.mode
        if mode == READ:
            holding = len(grants)
        elif mode == PERMIT:
            holding, limit = sum(hold.ask.permits for hold in holds), holds[-1].ask.limit
    try:
        first = room.queue[0]
    except IndexError:
        first = None
    if first is not None and now - first.came >= moment:
        waits_at, waiting_since = shown_where(first.terms.where), round(first.came + at_epoch, 1)
        waiting = len(room.queue)
        if first.terms.mode == PERMIT:
            limit = limit or first.terms.limit
    if not held_since and not waiting:
        return None
    return Row(room.key, held_at, held_since, waiting, waits_at, waiting_since, mode, holding, limit)
