"""The optional protocols for operators: show holders and waiters, break a lock, check the lock service.

A backend with the capability ``inspect`` is an `Inspectable`, too. Acquiring and releasing use none of this.
A hold and a queue entry name their *process*, because tokens begin with its id. If the backend is an
`Announces`, each process publishes its status now and then, in an entry that expires.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, runtime_checkable

from distlock.backends.base import EXCLUSIVE, Backend, Mode
from distlock.errors import BackendUnavailable, LockError

#: Seconds after which a hold or a wait is published.
MOMENT = 1.0
#: The most processes of a queue that are shown.
MOST_SHOWN = 100


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise `BackendUnavailable` if the block can't parse *what* the lock service has or answers.

    Another program may have written it, or something on the way may have changed it.
    """
    try:
        yield
    except LockError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise BackendUnavailable(f"{what} can't be read: {error!a:.200}.") from error


@dataclass(frozen=True, slots=True)
class StatusRow:
    """One process's published status of one key: the callers that have held it or waited for `MOMENT`."""

    key: str
    #: The view or function that holds the key; "" if none does, or it is unknown.
    held_at: str = ""
    #: When the key was acquired, in seconds since 1970; 0: the process does not hold the key, or see `held`.
    held_since: float = 0.0
    #: How many callers wait.
    waiting: int = 0
    #: The view or function of the first waiter.
    waits_at: str = ""
    #: Since when the first waiter waits, in seconds since 1970.
    waiting_since: float = 0.0
    #: The mode in which the process holds the key.
    mode: Mode = EXCLUSIVE
    #: How many readers or permits the process has.
    holding: int = 0
    #: The limit of permits; 0: there is none, or it is unknown.
    limit: int = 0
    #: Whether the process holds the key since an unknown time. No process publishes that: such a row is made
    #: from what a database server tells.
    held: bool = False

    def parts(self) -> list[str | float]:
        """Return the row without `held` as a list, for a backend that stores it: see `of_parts`."""
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
    def of_parts(cls, parts: Sequence[Any]) -> StatusRow:
        """Return the row of the list that `parts` returned. More parts, of a later version, are ignored.

        Raises `ValueError` if there are fewer parts than in any version.
        """
        key, held_at, held_since, waiting, waits_at, waiting_since, *more = parts[: len(fields(cls))]
        return cls(key, held_at, held_since, waiting, waits_at, waiting_since, *more)


@dataclass(frozen=True, slots=True)
class SeenProcess:
    """A process that the lock service shows, and its published status of one key."""

    process: str
    #: The host and pid; "" and 0 if the process has not published them.
    host: str = ""
    pid: int = 0
    row: StatusRow | None = None
    #: Seconds since the latest publication, if another one is overdue, so that *row* may be wrong; else 0.
    silent: float = 0.0


@dataclass(frozen=True, slots=True)
class Quorum:
    """How many of several servers have a hold. It counts if more than half of all servers have it."""

    #: The number of servers that have the hold.
    have: int
    #: The number of servers that have answered.
    answered: int
    #: The number of all servers.
    of: int


@dataclass(frozen=True, slots=True)
class KeyState:
    """The holders and waiters of one key at one moment."""

    #: The holder, or one of several readers or holders of permits. None: nobody holds the key.
    holder: SeenProcess | None = None
    #: The first fence number of the hold, which identifies it. None: it is unknown.
    number: int | None = 0
    #: The remaining lease, seconds; ``math.inf`` if it ends with its process; None if it is unknown.
    remaining: float | None = math.inf
    #: The processes that wait, the next one first; at most `MOST_SHOWN`.
    queue: Sequence[SeenProcess] = ()
    #: How many processes wait.
    waiting: int = 0
    #: The database's id of the transaction, if the hold is a transaction; else "".
    transaction: str = ""
    #: The mode of *holder*.
    mode: Mode = EXCLUSIVE
    #: How many more holds there are, of readers or permits.
    others: int = 0
    #: The other holders that are shown, at most `MOST_SHOWN`. A process appears once for each of its holds.
    beside: Sequence[SeenProcess] = ()
    #: For permits: how many are held, and the limit that a holder gave; 0: unknown.
    out: int = 0
    limit: int = 0
    #: How many servers have the hold. If nobody holds the key, some may have the hold of an attempt that got
    #: no majority. None: the lock service is a single server.
    quorum: Quorum | None = None
    #: The statement that ends this hold and all other holds of its session, if no hold can be ended alone;
    #: else "".
    ended_by: str = ""


@runtime_checkable
class Inspectable(Backend, Protocol):
    """A backend with the capability ``inspect``. Its methods keep deadlines as those of `Backend` do."""

    #: The id of this process at the lock service, which is no secret. A close or a fork changes it.
    process: str

    def inspect(self, key: str, deadline: float = math.inf) -> KeyState:
        """Return the holders and waiters of *key*."""

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[SeenProcess]:
        """Yield the published status of all processes for the keys that begin with *before*.

        Each `SeenProcess` has a row. The status is read in small parts during the iteration, so it is no
        snapshot.
        """


@runtime_checkable
class Breaks(Inspectable, Protocol):
    """A backend with the capability ``breaks``."""

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        """End the hold of *key* whose block begins with *number*, and hand the key off, in one step.

        If readers share the number, all their holds end. Return False, and change nothing, if *key* is free
        or has another hold. The process of the hold is notified at once if the service can do that; else its
        next renewal fails.
        """


@runtime_checkable
class Announces(Inspectable, Protocol):
    """An `Inspectable` whose processes publish their status on the lock service."""

    def announce(
        self,
        host: str,
        pid: int,
        rows: Sequence[StatusRow],
        gone: Sequence[str],
        life: float,
        deadline: float = math.inf,
        lease: float = 0.0,
    ) -> bool:
        """Publish the *rows* of this process, and withdraw the rows of the keys *gone*.

        The rows of other keys stay. All rows expire after *life* seconds, unless this is called again. Return
        False if earlier rows had expired: then publish all rows again.

        After *life* seconds without a call, the process may still hold its keys for its longest lease,
        *lease* seconds: it is shown as *silent* meanwhile. A lock service that notices the end of a process
        may show the process until its end.
        """


def inspectable(backend: Backend) -> Inspectable | None:
    """Return *backend* if it has the capability ``inspect``, else None."""
    return backend if backend.capabilities.inspect and isinstance(backend, Inspectable) else None


#: ``error``: locks don't work, or don't exclude. ``warning``: they may fail later.
Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a health check."""

    level: Level
    #: The subject, in a word or two: ``eviction``.
    about: str
    said: str
    #: The remedy; "" if nothing has to be done.
    remedy: str = ""


#: The share of a server's connections above which a health check warns.
_NEARLY_ALL = 0.9


def connections(
    here: int, most: int, ours: int, setting: str, lower: bool = True, shown: str = ""
) -> Finding:
    """Return a finding about the connections of a server.

    Args:
        here: The number of open connections.
        most: The number that the server allows; 0 if it is unknown.
        ours: The largest number that one process of distlock opens.
        setting: The server's setting for *most*.
        lower: Whether the option max_connections bounds *ours*.
        shown: The text to show for *ours*. By default, the number.
    """
    said = f"{here} of at most {most or '?'} are open; one process opens up to {shown or ours}."
    if not most or here + ours <= most * _NEARLY_ALL:
        return Finding("ok", "connections", said)
    or_lower = ", or lower max_connections in OPTIONS" if lower else ""
    return Finding("warning", "connections", said, f"Raise {setting} of the server{or_lower}.")


@runtime_checkable
class Examinable(Protocol):
    """A backend with a health check of its lock service."""

    def examine(self) -> Iterator[Finding]:
        """Yield findings about the lock service, and change nothing there.

        The backend bounds the time. A missing right is a finding. Raises `BackendUnavailable`.
        """


@runtime_checkable
class MadeByUse(Protocol):
    """A backend whose first lock makes what all locks need. A health check must not make it."""

    def unmade(self) -> Finding | None:
        """Return a warning if the lock service has had no lock yet, else None. Raises as `examine` does."""
