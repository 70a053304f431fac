"""The holder of a lock and those that wait for it, and for how long."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from distlock.backends.inspectable import Row, Seen, Sight
from distlock.grant import Fence
from distlock.names import check_name

#: Seconds. What holds a lock for a shorter time is not what one waits for.
_MOMENT = 1.0


def printable(said: str) -> str:
    """*said* as a terminal or a log may be told it: other programs write to the lock service, too."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in said)


@dataclass(frozen=True, slots=True)
class Party:
    """A process that holds a lock or waits for it, as far as is known."""

    #: How the lock service calls it.
    process: str
    #: "" and 0: it has said nothing of itself, because it came less than a few seconds ago, or is older.
    host: str = ""
    pid: int = 0
    #: The view or function; "" if nothing is known of it.
    where: str = ""
    #: Since when, seconds since 1970; 0: for about a second at most, or nothing is known of it.
    since: float = 0.0
    #: Callers that wait there.
    waiting: int = 0

    def seconds(self) -> float:
        """For how long, as far as is known."""
        return max(0.0, time.time() - self.since) if self.since else 0.0

    def __str__(self) -> str:
        at = f"process {self.pid} on {self.host}" if self.host else f"process {self.process}"
        return printable(f"{self.where} in {at}" if self.where else at)


@dataclass(frozen=True, slots=True)
class LockState:
    """One lock, as it was at one moment."""

    name: str
    #: None: nobody holds it.
    holder: Party | None
    #: The first fence of the hold. None: nobody holds it.
    fence: Fence | None
    #: What is left of the lease, seconds; ``math.inf``: it has none, and ends with its process.
    remaining: float
    #: The processes that wait, the next one first; of a long queue the beginning.
    queue: tuple[Party, ...]
    #: How many processes wait.
    waiting: int
    #: Where the hold is a transaction, what the database calls that; "" elsewhere. One that comes after a
    #: ROLLBACK has the same fence, and is another one.
    transaction: str = ""

    @property
    def hold(self) -> str:
        """Names this hold, and none after it; "" if nobody holds it."""
        if self.fence is None:
            return ""
        return f"{self.fence.number}.{self.transaction}" if self.transaction else str(self.fence.number)


@dataclass(frozen=True, slots=True)
class Listed:
    """What one process says of one name."""

    name: str
    party: Party
    #: Whether it holds the name; else it waits.
    held: bool


class Observed(Protocol):
    """What a namespace tells of its names."""

    def inspect(self, name: str) -> tuple[Sight, Row | None, str]:
        """What the lock service shows; what this process knows; how the lock service calls this process."""

    def known(self, name: str) -> tuple[Sight | None, Row | None]:
        """What was seen of *name* last; what this process has of it. Asks nobody."""

    def announced(self, before: str) -> Iterator[tuple[str, Seen]]:
        """Name, and what a process says of it."""

    def break_hold(self, name: str, number: int, transaction: str = "") -> bool: ...

    era: int


def inspect(namespace: Observed, name: str) -> LockState:
    """See `distlock.Locks.inspect`."""
    sight, mine, us = namespace.inspect(check_name(name))
    holder, fence = None, None
    if sight.holder is not None:
        row = mine if sight.holder.process == us else sight.holder.row
        holder, fence = _holds(sight.holder, row), Fence(namespace.era, sight.number)
    queue = tuple(_waits(seen, mine if seen.process == us else seen.row) for seen in sight.queue)
    remaining = sight.remaining if holder else math.inf
    return LockState(name, holder, fence, remaining, queue, sight.waiting, sight.transaction)


def known_holder(namespace: Observed, name: str) -> Party | None:
    """The holder of *name* if it has held it for longer than a moment, as far as is known. Asks nobody."""
    sight, mine = namespace.known(name)
    if mine is not None and mine.held_since:
        party = Party("", socket.gethostname(), os.getpid(), mine.held_at, mine.held_since)
    elif sight is not None and sight.holder is not None and sight.holder.row is not None:
        party = _holds(sight.holder, sight.holder.row)
    else:
        return None
    return party if party.seconds() >= _MOMENT else None


def list_locks(namespace: Observed, before: str = "") -> Iterator[Listed]:
    """See `distlock.Locks.list`."""
    for name, seen in namespace.announced(before):
        if seen.row is not None and seen.row.held_since:
            yield Listed(name, _holds(seen, seen.row), held=True)
        if seen.row is not None and seen.row.waiting:
            yield Listed(name, _waits(seen, seen.row), held=False)


def _holds(seen: Seen, row: Row | None) -> Party:
    if row is None:
        return Party(seen.process, seen.host, seen.pid)
    return Party(seen.process, seen.host, seen.pid, row.held_at, row.held_since)


def _waits(seen: Seen, row: Row | None) -> Party:
    where, since, waiting = (
        (row.waits_at, row.waiting_since, row.waiting) if row is not None else ("", 0.0, 0)
    )
    return Party(seen.process, seen.host, seen.pid, where, since, waiting)
