"""Admission: a caller that would most likely wait in vain is refused at once, instead of being stored.

What counts is how often this process is granted a name, not how long it holds it: the turns of other
processes lengthen the interval between two grants, and nobody has to ask them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from distlock.errors import TooManyWaiters

if TYPE_CHECKING:
    from distlock.room import Room

#: Which share of what is left of its time-out a caller may be expected to wait.
SHARE = 0.8
#: How many grants the smoothed interval looks back. A turn of another process is one long interval among
#: many short ones, so a single one must not count for all.
LOOKS_BACK = 8
#: A gap of so many seconds counts for as much as all before it: behind a slow view grants are too few to
#: wait for eight of them.
LONG = 2.0
#: Seconds in which the interval of a name that nobody waits for halves: what was slow then may be fast now.
HALF_LIFE = 10.0
#: How many names that nobody waits for are remembered.
REMEMBERED = 1024


class Pace:
    """How often a room is granted its lock. An unknown name begins with one grant for nothing."""

    __slots__ = ("grants", "interval", "noted")

    def __init__(self) -> None:
        #: Smoothed seconds between two grants, while somebody waits.
        self.interval = 0.0
        self.grants = 1
        self.noted = 0.0

    def after(self, gap: float) -> float:
        """What the interval were if a grant came now, *gap* seconds after the last one."""
        weight = max(1 / min(self.grants + 1, LOOKS_BACK), gap / (gap + LONG))
        return self.interval + (gap - self.interval) * weight

    def note(self, gap: float) -> None:
        self.interval = self.after(gap)
        self.grants += 1


class Admission:
    """Who may come in, and how long each name's waits are. The engine calls it under its mutex."""

    def __init__(self, max_waiters: int | None, max_waiters_total: int | None) -> None:
        self.max_waiters = max_waiters
        self.max_waiters_total = max_waiters_total
        #: The paces of names without a room, the one that was left last at the end.
        self._remembered: dict[str, Pace] = {}

    def admit(self, room: Room, waiting: int, timeout: float, now: float) -> None:
        """Raise `TooManyWaiters` if one more caller, with *timeout* seconds left, can't come in.

        *waiting*: callers that wait in all rooms. Who is next in its room always may.
        """
        ahead = len(room.queue)
        if self.max_waiters is not None and ahead >= self.max_waiters:
            raise _full(room.name, ahead, f"max_waiters={self.max_waiters}")
        if self.max_waiters_total is not None and waiting >= self.max_waiters_total:
            raise _full(room.name, waiting, f"max_waiters_total={self.max_waiters_total}")
        if ahead and timeout != math.inf and (expected := expected_wait(room, now)) > SHARE * timeout:
            raise TooManyWaiters(
                f"The lock {room.name!r} would be waited for about {expected:.2g} seconds, behind {ahead} "
                f"others of this process, and {timeout:.3g} seconds are left of the time-out. Try later, "
                "hold the lock for a shorter time, or raise the time-out.",
                name=room.name,
                expected_wait=expected,
            )

    def granted(self, room: Room, now: float, waited: bool) -> None:
        """The room has its lock. *waited*: it was not simply free."""
        if waited:
            _note(room, now, whole=room.granted)
        room.since = now
        room.granted = True

    def timed_out(self, room: Room, now: float) -> None:
        """Somebody gave up. The interval is at least as long as the room has been waiting by now."""
        _note(room, now, whole=False)

    def recall(self, key: str, now: float) -> Pace | None:
        """What is known of a name that gets a room again."""
        pace = self._remembered.pop(key, None)
        if pace is not None:
            pace.interval *= 0.5 ** ((now - pace.noted) / HALF_LIFE)
        return pace

    def remember(self, room: Room) -> None:
        """The room is gone. Only names that were waited for are worth it."""
        if room.pace is not None:
            self._remembered[room.key] = room.pace
            if len(self._remembered) > REMEMBERED:
                del self._remembered[next(iter(self._remembered))]

    def forget(self) -> None:
        self._remembered = {}


def expected_wait(room: Room, now: float) -> float:
    """Seconds that one more caller of *room* waits, as far as one can tell.

    The next grant takes as long again as it has taken, or as usual, whatever is longer; then come those who
    are ahead. For them the gap that is open counts as one among others: one slow holder does not make the
    whole line slow.
    """
    gap = now - room.since
    pace = room.pace or _UNKNOWN
    return max(pace.interval, gap) + len(room.queue) * max(pace.interval, pace.after(gap))


def _note(room: Room, now: float, whole: bool) -> None:
    """Count the gap that is open. *whole*: from grant to grant; else the interval is that long at least."""
    gap = now - room.since
    if room.pace is None:
        room.pace = Pace()
    if whole or gap > room.pace.interval:
        room.pace.note(gap)
        room.pace.noted = now


def _full(name: str, waiting: int, limit: str) -> TooManyWaiters:
    return TooManyWaiters(
        f"No room for one more waiter for the lock {name!r}: {waiting} callers of this process wait already "
        f"({limit}). Try again later, or raise the limit.",
        name=name,
    )


_UNKNOWN = Pace()
