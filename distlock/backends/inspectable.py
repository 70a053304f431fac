"""What a lock service may do beyond locking: show who holds what, and let an operator break a lock.

A backend with the capability ``inspect`` is an `Inspectable`, too. Nothing of it is on the way of a lock.
A hold and a place in a queue name their *process*, for tokens begin with its id. What a person wants to know
beyond that each process says of itself, now and then, in an entry that expires; or the server knows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

from distlock.backends.base import EXCLUSIVE, Backend, Mode

#: Seconds after which a hold or a wait is worth a word.
MOMENT = 1.0
#: How many of a queue are shown.
MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Row:
    """A process's holder and waiters of one key, if they have lasted for longer than a moment."""

    key: str
    #: The view or function that holds it; "" if none does, or nothing is known of it.
    held_at: str = ""
    #: Since when, seconds since 1970; 0: it does not hold it, or see *held*.
    held_since: float = 0.0
    #: How many callers wait.
    waiting: int = 0
    #: The first of them: its view or function, and since when.
    waits_at: str = ""
    waiting_since: float = 0.0
    #: In which mode it is held here; how many callers read, or how many permits they have, of how many.
    mode: Mode = EXCLUSIVE
    holding: int = 0
    limit: int = 0
    #: It holds it, and since when is not known. No process says that of itself.
    held: bool = False

    def parts(self) -> list[str | float]:
        """Return the arguments of `of_parts`, for a backend that has to store the row."""
        parts: list[str | float] = [
            self.key,
            self.held_at,
            self.held_since,
            self.waiting,
            self.waits_at,
            self.waiting_since,
        ]
        if self.mode != EXCLUSIVE or self.limit:
            parts += [self.mode, self.holding, self.limit]
        return parts

    @classmethod
    def of_parts(cls, parts: Sequence[Any]) -> Row:
        """Return the row of `parts`. Further parts, of another version, are ignored.

        Raises `ValueError` for less than any version says.
        """
        key, held_at, held_since, waiting, waits_at, waiting_since, *more = parts[: len(fields(cls))]
        return cls(key, held_at, held_since, waiting, waits_at, waiting_since, *more)


@dataclass(frozen=True, slots=True)
class Seen:
    """A process, as the lock service shows it, and what it says of one key."""

    process: str
    #: "" and 0 if it has said nothing of itself.
    host: str = ""
    pid: int = 0
    row: Row | None = None
    #: Seconds since it last said something, where that is longer than it promised; 0: it responds. What it
    #: said last need not be true any more.
    silent: float = 0.0


@dataclass(frozen=True, slots=True)
class Quorum:
    """Where the majority of several servers decides: of how many how many have a hold, and answered."""

    have: int
    answered: int
    of: int


@dataclass(frozen=True, slots=True)
class Sight:
    """One key, as it was at one moment."""

    #: One of the holders, for readers or permits.
    holder: Seen | None = None
    #: The first number of the hold. It names this hold, and none after it. None: it is not told.
    number: int | None = 0
    #: The remaining lease, seconds; ``math.inf`` if it ends with its process; None if it is unknown.
    remaining: float | None = math.inf
    #: The processes that wait, the next one first: `MOST_SHOWN` at most.
    queue: Sequence[Seen] = ()
    #: How many processes wait.
    waiting: int = 0
    #: Where a hold is a transaction, what the database calls that; "" elsewhere.
    transaction: str = ""
    #: In which mode *holder* has the key; and how many more have it, of readers or permits.
    mode: Mode = EXCLUSIVE
    others: int = 0
    #: The other holders that are shown, at most `MOST_SHOWN`: a process for each of its holds.
    beside: Sequence[Seen] = ()
    #: How many permits are out, and the limit that a holder gave; 0 if that is unknown.
    out: int = 0
    limit: int = 0
    #: The servers that have it; None for one server. If nobody holds the key, those that have a remnant.
    quorum: Quorum | None = None
    #: Where no hold ends alone: what is said to the lock service to end this one, and all that is held beside
    #: it; "" elsewhere.
    ended_by: str = ""


@runtime_checkable
class Inspectable(Backend, Protocol):
    """A backend with the capability ``inspect``. What `Backend` says of I/O and deadlines holds here, too."""

    #: Names this process at the lock service, and is no secret. Another one after a close and after a fork.
    process: str

    def inspect(self, key: str, deadline: float = math.inf) -> Sight:
        """The holder of *key* just now, and those that wait for it."""

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[Seen]:
        """What all processes say of the keys that begin with *before*: a `Seen` with a row for each.

        It is read in small parts while you go through it, so it is no picture of one moment.
        """


@runtime_checkable
class Breaks(Inspectable, Protocol):
    """A backend with the capability ``breaks``."""

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        """End the hold of *key* whose block begins with *number*, and hand it over, in one step.

        Readers may have one number: then all that have it end. False, and nothing is changed, if it is not
        held, or by another hold. The broken process is told at
        once where the service can do that, and else finds out at its next renewal.
        """


@runtime_checkable
class Announces(Inspectable, Protocol):
    """An `Inspectable` whose lock service knows nothing of processes but what they say of themselves."""

    def announce(
        self,
        host: str,
        pid: int,
        rows: Sequence[Row],
        gone: Sequence[str],
        life: float,
        deadline: float = math.inf,
        lease: float = 0.0,
    ) -> bool:
        """Say of this process that it has *rows*, and nothing to say of the keys *gone* any more.

        What was said of other keys stays. All of it is forgotten after *life* seconds, unless this is called
        again. False if what was said before had been forgotten meanwhile: then say all of it again.

        For *lease* seconds more, the longest of its leases, a process that says nothing may still hold what
        it held: it is shown as *silent* meanwhile. A lock service that knows when a process ends may show it
        for as long as that lives.
        """


def inspectable(backend: Backend) -> Inspectable | None:
    """*backend*, if it can do that."""
    return backend if backend.capabilities.inspect and isinstance(backend, Inspectable) else None
