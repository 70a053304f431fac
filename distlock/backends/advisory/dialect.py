"""What each database says in words of its own, and how it is connected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from distlock.backends.advisory.standing import Standing
from distlock.backends.findings import Finding
from distlock.errors import LockError

#: The rows of one statement.
Rows = list[list[str | None]]
#: Sends statements, and returns the rows of each.
Say = Callable[[str], list[Rows]]


@dataclass(frozen=True, slots=True)
class ServerLock:
    """The lock of a name, as the server knows it. Both as SQL."""

    id: str
    #: Our name, with its prefix.
    name: str


class Wire(Protocol):
    """One connection that never blocks longer than it is told. One thread at a time.

    Raises `TimeoutError`, `Refused` or `Gone`. After a `TimeoutError` the answer is still to come.
    """

    #: Since when an answer is awaited; None: none is.
    since: float | None
    #: Its socket, also when that is closed.
    fileno: int

    @property
    def is_closed(self) -> bool:
        """Whether this side has closed it, as it may where an interrupt leaves half an answer."""

    def call(self, statements: str, deadline: float) -> list[Rows]:
        """The rows of each of the *statements*. What is left of an earlier answer is awaited before."""

    def send(self, statements: str) -> None: ...

    def is_answered(self) -> bool:
        """Whether something was sent, and its answer comes. Waits for nothing."""

    def hear(self, seconds: float) -> None:
        """Wait until something comes, for *seconds* at most."""

    def answer(self, deadline: float) -> list[Rows]:
        """Return the rows of the statements that were sent. The first error is raised after all of them."""

    def close(self) -> None: ...

    def forget(self) -> None:
        """In a forked child: the parent's session goes on, and does not outlive it because of us."""


class Dialect(Protocol):
    """One database as a lock service. What takes a *say* asks in one session, and raises what `Wire` does."""

    #: For people, without a password.
    shown: str
    #: Asks nothing, and shows that the session is there.
    ping: str

    def open(self, deadline: float, patience: float, waits: bool) -> tuple[Wire, int]:
        """A session, and the number that the server gives it. What can't keep locks is refused.

        A statement that somebody keeps waiting ends after *patience* seconds, lest it keep the locks of a
        process that hangs meanwhile. *waits*: it is for waiting, which does not end.
        """

    def lock_of(self, key: str, say: Say, make: bool) -> ServerLock | None:
        """Return the lock of *key*, or None if nobody has locked it yet and *make* is False."""

    def forget(self) -> None:
        """Forget cached locks, because they are wrong by now."""

    def take(self, say: Say, lock: ServerLock, ttl: float, span: int) -> int | None:
        """Take it if it is free, passing nobody who waits: the first of *span* new numbers. None: it is not.

        The session then ends when it was idle for *ttl* seconds. What is `Refused` may have been taken.
        """

    def accept(self, say: Say, lock: ServerLock, ttl: float, span: int) -> int:
        """The same of a lock that is ours since a wait."""

    def wait(self, lock: ServerLock, window: float) -> str:
        """Answered when the lock is ours. Until somebody notices, it is worth *window* seconds."""

    def check_had(self, answer: list[Rows]) -> None:
        """`Refused` unless *answer*, that of `wait`, says that the lock is ours."""

    def give_back(self, say: Say, lock: ServerLock, last: bool) -> bool:
        """Whether it was ours. *last*: the session holds nothing else, and may be idle as it likes."""

    def lift(self, say: Say, lock: ServerLock, have: int, number: int, span: int) -> int:
        """The first of *span* numbers above *number*, which is more than we *have*; later ones are higher.

        `ConfigurationError` if the server can't count so far.
        """

    def stands(self, say: Say, lock: ServerLock, session: int) -> bool | None:
        """Whether *session* has the lock (True), waits for it (False), or has not come to that (None)."""

    def call_off(self, say: Say, lock: ServerLock, session: int) -> bool:
        """End the wait of *session*. False: it has the lock, and is left alone."""

    def held(self, say: Say, lock: ServerLock) -> bool:
        """Whether anybody holds it."""

    def standing(self, say: Say, key: str) -> Iterator[Standing]:
        """Yield the holder of *key*, and then its waiters, the next one first."""

    def all_standing(self, say: Say, before: str) -> Iterator[Standing]:
        """The same of all keys that begin with *before*."""

    def ending(self, session: int) -> str:
        """Return the statement with which a person ends *session*."""

    def prepare(self, say: Say) -> str:
        """Make what is needed, unless it is there. Returns a sentence that says so."""

    def examine(self, say: Say, sessions: int) -> Iterator[Finding]:
        """See `distlock.backends.findings.Examinable`. *sessions*: how many a process of ours may open."""

    def told(self, error: BaseException) -> LockError:
        """*error*, as callers are told."""
