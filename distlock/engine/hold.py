"""A hold: what the process owns on the lock service. Grants are carved from it, one after the other."""

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


class Hold:
    __slots__ = (
        "ask",
        "deadline",
        "due",
        "first_number",
        "grant",
        "lifted",
        "lost",
        "max_hold",
        "renewed",
        "returning",
        "room",
        "since",
        "turn_ends",
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
        #: The grant that is out just now. There is one whenever the engine's mutex is free,
        #: unless the thread that had the mutex was interrupted.
        self.grant: NameGrant | None = None
        #: Whose grant that is.
        self.waiter: Waiter | None = None
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

    @property
    def owner(self) -> Owner | None:
        """The thread or task that was granted it."""
        return None if self.waiter is None else self.waiter.owner

    def is_out(self, grant: NameGrant) -> bool:
        """Whether *grant* is carved from it, and nothing that followed."""
        return self.grant is grant

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
        self.renewed = sent
        self.deadline = sent + ttl - margin(ttl) if ttl != math.inf else math.inf

    def may_pass(self, now: float) -> bool:
        """Whether the next grant may be carved from it, with a fair share of its lifetime before it."""
        return (
            not self.lost
            and self.used < self.ask.span
            and now < self.turn_ends
            and now < self.deadline - self.ask.ttl / 3
        )
