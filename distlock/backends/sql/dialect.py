"""What the two databases have in common: locks, connections, errors, and the protocol of a dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from distlock.backends.inspectable import Finding
from distlock.errors import LockError

#: The rows of one statement.
Rows = list[list[str | None]]
#: Executes statements in one session, and returns the rows of each.
Execute = Callable[[str], list[Rows]]

#: The share of the server's connections above which the health check warns.
_NEARLY_ALL = 0.9


class ServerError(Exception):
    """The server answered with an error."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class RowMissing(ServerError):
    """The server's row of the name is gone, or belongs to another name."""


class SessionLost(Exception):
    """The session broke, or ended. The locks that it held are free."""


@dataclass(frozen=True, slots=True)
class ServerLock:
    """The lock of a name, as the server knows it. Both fields are SQL."""

    id: str
    #: The key: the name with its prefix.
    name: str


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """One session that has the lock of *key* or waits for it, as the server shows it."""

    key: str
    #: The server's id of the session.
    session: int
    #: For how long it has waited, seconds; None: it has the lock.
    waited: float | None
    #: What the server tells of the session, for people.
    description: str
    #: The host and pid of its process; "" and 0 if the process does not tell them.
    host: str = ""
    pid: int = 0


class ServerConnection(Protocol):
    """One connection, used by one thread at a time, that never blocks beyond a deadline.

    Its methods raise `TimeoutError`, `ServerError` or `SessionLost`. After a `TimeoutError` the answer is
    still to come.
    """

    #: When the unanswered statements were sent; None: no answer is pending.
    since: float | None
    #: The descriptor of its socket, also when that is closed.
    fileno: int

    @property
    def is_closed(self) -> bool:
        """Whether this side has closed it, as it may when an interrupt leaves half an answer."""

    def call(self, statements: str, deadline: float) -> list[Rows]:
        """Return the rows of each of the *statements*. First awaits the rest of an earlier answer."""

    def send(self, statements: str) -> None: ...

    def is_answered(self) -> bool:
        """Return whether statements were sent and their answer arrives. Does not block."""

    def wait_readable(self, seconds: float) -> None:
        """Wait until bytes arrive, for *seconds* at most."""

    def answer(self, deadline: float) -> list[Rows]:
        """Return the rows of the statements that were sent. Raise the first error after reading all."""

    def close(self) -> None: ...

    def forget(self) -> None:
        """Close our copy of the socket in a forked child, without ending the parent's session."""


class Dialect(Protocol):
    """The SQL of one database.

    A method that takes *execute* runs statements in one session, and raises what `ServerConnection` does.
    """

    #: The server and the database, for people, without a password.
    shown: str
    #: A statement that asks nothing, and shows that the session is there.
    ping: str

    def open(self, deadline: float, patience: float, waits: bool) -> tuple[ServerConnection, int]:
        """Return a session, and the server's id of it. Raise if the server can't keep locks.

        A session that does not wait ends after a statement of *patience* seconds, so that it does not keep
        the locks of a process that hangs meanwhile. *waits*: the session is for waiting, without that bound.
        """

    def lock_of(self, key: str, execute: Execute, make: bool) -> ServerLock | None:
        """Return the lock of *key*, or None if nobody has locked it yet and *make* is False."""

    def forget(self) -> None:
        """Forget cached locks, because they are wrong by now."""

    def take(self, execute: Execute, lock: ServerLock, ttl: float, span: int) -> int | None:
        """Take the lock if it is free and no session waits for it.

        Return the first of *span* new fence numbers; None: it is not free. The session then ends when it has
        been idle for *ttl* seconds. After a `ServerError` the lock may have been taken.
        """

    def accept(self, execute: Execute, lock: ServerLock, ttl: float, span: int) -> int:
        """Do the same as `take` for a lock that the session got by waiting."""

    def wait(self, lock: ServerLock, window: float) -> str:
        """Return the statements that wait for the lock.

        The lock ends again after *window* seconds in which nobody accepts it.
        """

    def check_granted(self, answer: list[Rows]) -> None:
        """Raise `ServerError` unless *answer*, that of `wait`, says that the lock is ours."""

    def release(self, execute: Execute, lock: ServerLock, last: bool) -> bool:
        """Return whether it was ours. *last*: the session holds no other lock, and may stay idle."""

    def raise_fence(self, execute: Execute, lock: ServerLock, have: int, number: int, span: int) -> int:
        """Return the first of *span* numbers above *number*; later ones are higher.

        *number* is greater than ours, *have*. Raises `ConfigurationError` if the server can't count so far.
        """

    def has_granted(self, execute: Execute, lock: ServerLock, session: int) -> bool | None:
        """Return whether *session* has the lock (True) or waits for it (False); None: neither, yet."""

    def cancel_wait(self, execute: Execute, lock: ServerLock, session: int) -> bool:
        """End the wait of *session*. Return False, and change nothing, if it has the lock."""

    def is_locked(self, execute: Execute, lock: ServerLock) -> bool:
        """Return whether any session holds the lock."""

    def sessions_of(self, execute: Execute, key: str) -> Iterator[SessionStatus]:
        """Yield the holder of *key*, and then its waiters, the next one first."""

    def sessions_below(self, execute: Execute, prefix: str) -> Iterator[SessionStatus]:
        """Yield the sessions of all keys that begin with *prefix*."""

    def ending(self, session: int) -> str:
        """Return the statement with which a person ends *session*."""

    def prepare(self, execute: Execute) -> str:
        """Make the tables unless they are there. Return a sentence that says so."""

    def examine(self, execute: Execute, sessions: int) -> Iterator[Finding]:
        """Yield findings: see `distlock.backends.inspectable.Examinable`.

        *sessions*: how many sessions one of our processes may open.
        """

    def error_for(self, error: BaseException) -> LockError:
        """Return the error that a caller gets for *error*."""


def connections(here: int, most: int, sessions: int) -> Finding:
    """Return a finding: *here* of at most *most* are open, and a process of ours opens up to *sessions*."""
    said = f"{here} of at most {most} are open; one process opens up to {sessions}."
    if here + sessions > most * _NEARLY_ALL:
        remedy = "Raise max_connections of the server, or lower max_connections in OPTIONS."
        return Finding("warning", "connections", said, remedy)
    return Finding("ok", "connections", said)
