"""A hold: what the process owns on the lock service. Grants are carved from it, one after the other.

Readers share one: each has a grant of its own, all at the same time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from distlock.backends.base import Ask
from distlock.grant import Fence
from distlock.owner import Owner

if TYPE_CHECKING:
    from distlock.engine.name_grant import NameGrant
    from distlock.engine.room import Room, Waiter

#: A turn is what one process may do with a hold before the next process has its own: this many grants …
SPAN = 64
#: … begun within this many seconds. Both bounds are from the cohorts of https://doi.org/10.1145/2145816.2145848
TURN = 0.05


def margin(ttl: float) -> float:
    """How much earlier than the server we call a lease over: clocks drift, and the news has to arrive."""
    return 0.02 * ttl + 0.002


#: No readers: most holds have none. Nobody changes it.
_NOBODY: dict[NameGrant, Waiter] = {}


class Hold:
    __slots__ = (
        "acknowledged",
        "ask",
        "deadline",
        "due",
        "first_number",
        "followed",
        "grant",
        "lifted",
        "lost",
        "max_hold",
        "period",
        "readers",
        "reads_end",
        "release_requested",
        "renewed",
        "returning",
        "room",
        "since",
        "turn_ends",
        "turning",
        "used",
        "waiter",
    )

    def __init__(
        self, room: Room, ask: Ask, first_number: int, sent: float, ttl: float, max_hold: float
    ) -> None:
        self.room = room
        self.ask = ask
        self.first_number = first_number
        self.used = 0
        #: Whether the block was exchanged for a higher one.
        self.lifted = False
        self.lost: str | None = None
        #: The grant that is out just now. There is one, or a reader, whenever the engine's mutex is free,
        #: unless the thread that had the mutex was interrupted.
        self.grant: NameGrant | None = None
        #: Somebody wants it back: it goes on to nobody in this process.
        self.release_requested = False
        #: Whose grant that is.
        self.waiter: Waiter | None = None
        #: The grants of readers that are out, and whose they are. Beside a writer's only its own.
        self.readers: dict[NameGrant, Waiter] = _NOBODY
        #: When the first of them has read for too long.
        self.reads_end = math.inf
        #: Others wait for the key: no reader may come in any more.
        self.followed = False
        #: What the lock service may have turned it into, by a downgrade whose end is not known.
        self.turning: Ask | None = None
        #: It is on its way back to the lock service.
        self.returning = False
        #: Since when its present caller has it. With no caller the same limit counts from its beginning on.
        self.since = sent
        self.turn_ends = sent + TURN
        #: How long its present caller may have it, seconds.
        self.max_hold = max_hold
        #: When the keeper looks at it next.
        self.due = math.inf
        self.renew(sent, ttl)

    @classmethod
    def handed(
        cls, room: Room, ask: Ask, first_number: int, sent: float, window: float, max_hold: float, now: float
    ) -> Hold:
        """One that a push has handed over at *now*, and that lives for *window* after *sent*."""
        hold = cls(room, ask, first_number, now, window, max_hold)
        hold.acknowledged = False
        hold.deadline = sent + window - margin(window)
        hold.period = window / 8
        return hold

    @property
    def grants(self) -> list[NameGrant]:
        """Those that are out, the oldest first."""
        # To copy is one step: some look without the mutex.
        return [*self.readers] if self.grant is None else [self.grant, *self.readers]

    @property
    def owners(self) -> list[Owner]:
        """The threads and tasks that were granted it."""
        readers = [waiter.owner for waiter in [*self.readers.values()]]
        return readers if self.waiter is None else [self.waiter.owner, *readers]

    @property
    def is_used(self) -> bool:
        """Whether somebody has it."""
        return bool(self.readers) or (self.grant is not None and not self.grant.released)

    @property
    def ends(self) -> float:
        """When its present caller has had it for too long. Readers have limits of their own."""
        grant = self.grant
        if self.readers and (grant is None or grant.released):
            return math.inf
        return self.since + self.max_hold

    def is_out(self, grant: NameGrant) -> bool:
        """Whether *grant* is carved from it, and nothing that followed."""
        return self.grant is grant or grant in self.readers

    def waiter_of(self, grant: NameGrant) -> Waiter | None:
        """Whose grant that is."""
        return self.waiter if self.grant is grant else self.readers.get(grant)

    def admit(self, grant: NameGrant, waiter: Waiter) -> None:
        """*waiter* reads with *grant*, beside others."""
        if self.readers is _NOBODY:
            self.readers = {}
        self.readers[grant] = waiter
        self.reads_end = min(self.reads_end, grant._ends)

    def end_read(self, grant: NameGrant) -> bool:
        """It is over. False: it was before."""
        return self.readers.pop(grant, None) is not None

    def fence(self, era: int) -> Fence:
        """That of the latest grant. Readers have no number of their own."""
        return Fence(era, self.first_number + max(0, self.used - 1))

    def next_fence(self, era: int) -> Fence:
        fence = Fence(era, self.first_number + self.used)
        self.used += 1
        return fence

    def lift(self, first_number: int) -> None:
        """The lock service has reserved another block, from *first_number* on."""
        self.lifted = True
        self.first_number = first_number
        self.used = 0

    def renew(self, sent: float, ttl: float) -> None:
        """The lock service confirmed the hold in an answer to what was sent at *sent*."""
        #: False: it came by a push, and the lock service has not confirmed it yet.
        self.acknowledged = True
        self.renewed = sent
        #: The keeper has it confirmed again after so many seconds.
        self.period = self.ask.ttl / 3
        self.deadline = sent + ttl - margin(ttl) if ttl != math.inf else math.inf

    def may_pass(self, now: float) -> bool:
        """Whether the next grant may be carved from it, with a fair share of its lifetime before it."""
        return (
            not self.lost
            and not self.release_requested
            and self.acknowledged
            and self.turning is None
            and self.used < self.ask.span
            and now < self.turn_ends
            and now < self.deadline - self.ask.ttl / 3
        )
