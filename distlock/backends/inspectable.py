"""What a lock service may do beyond locking: show who holds what, and let an operator break a lock.

A backend with the capability ``inspect`` is an `Inspectable`, too. Nothing of it is on the way of a lock.
A hold and a place in a queue name their *process*, for tokens begin with its id. What a person wants to know
beyond that each process says of itself, now and then, in an entry that expires.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from distlock.backends.base import Backend

#: How many of a queue are shown.
MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Row:
    """What a process says of one key: who holds it here, and who waits here, for longer than a moment."""

    key: str
    #: The view or function that holds it; "" if none does, or nothing is known of it.
    held_at: str = ""
    #: Since when, seconds since 1970; 0: it does not hold it.
    held_since: float = 0.0
    #: How many callers wait.
    waiting: int = 0
    #: The first of them: its view or function, and since when.
    waits_at: str = ""
    waiting_since: float = 0.0

    def parts(self) -> list[str | float]:
        """What `Row` takes to make it again: for a backend that has to write it down."""
        return [
            self.key,
            self.held_at,
            self.held_since,
            self.waiting,
            self.waits_at,
            self.waiting_since,
        ]


@dataclass(frozen=True, slots=True)
class Seen:
    """A process, as the lock service shows it, and what it says of one key."""

    process: str
    #: "" and 0 if it has said nothing of itself.
    host: str = ""
    pid: int = 0
    row: Row | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """One key, as it was at one moment."""

    holder: Seen | None = None
    #: The first number of the hold. It names this hold, and none after it.
    number: int = 0
    #: What is left of its lease, seconds; ``math.inf``: it ends with its process.
    remaining: float = math.inf
    #: The processes that wait, the next one first: `MOST_SHOWN` at most.
    queue: Sequence[Seen] = ()
    #: How many processes wait.
    waiting: int = 0
    #: Where a hold is a transaction, what the database calls that; "" elsewhere.
    transaction: str = ""


@runtime_checkable
class Inspectable(Backend, Protocol):
    """A backend with the capability ``inspect``. What `Backend` says of I/O and deadlines holds here, too."""

    #: Names this process at the lock service, and is no secret. Another one after a close and after a fork.
    process: str

    def inspect(self, key: str, deadline: float = math.inf) -> Sight:
        """The holder of *key* just now, and those that wait for it."""

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        """End the hold of *key* whose block begins with *number*, and hand it over, in one step.

        False, and nothing is changed, if it is not held, or by another hold. The broken process is told at
        once where the service can do that, and else finds out at its next renewal.
        """

    def announce(
        self,
        host: str,
        pid: int,
        rows: Sequence[Row],
        gone: Sequence[str],
        life: float,
        deadline: float = math.inf,
    ) -> bool:
        """Say of this process that it has *rows*, and nothing to say of the keys *gone* any more.

        What was said of other keys stays. All of it is forgotten after *life* seconds, unless this is called
        again. False if what was said before had been forgotten meanwhile: then say all of it again.
        """

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[Seen]:
        """What all processes say of the keys that begin with *before*: a `Seen` with a row for each.

        It is read in small parts while you go through it, so it is no picture of one moment.
        """


def inspectable(backend: Backend) -> Inspectable | None:
    """*backend*, if it can do that."""
    return backend if backend.capabilities.inspect and isinstance(backend, Inspectable) else None
