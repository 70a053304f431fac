"""The protocol of a dialect, which is the SQL of one database, and the errors that all dialects share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Protocol

from distlock.backends.inspectable import Finding
from distlock.backends.sql.connection import Rows, ServerConnection, ServerError, SessionLost
from distlock.errors import BackendUnavailable, ConfigurationError, LockError

#: A function that executes statements in one session, and returns the rows of each.
Execute = Callable[[str], list[Rows]]

_PREPARE = (
    "Run 'distlock prepare' once, with this URL but a user that may make tables in --url or DISTLOCK_URL."
)
_OLD_ROW = "the row of this name is gone"
#: The remedies of failures that all databases share: see `Dialect.remedies`.
_REMEDIES = (
    ("See whether it runs and can be reached from here.", "refused"),
    ("This process can start no more threads: see 'ulimit -u'.", "start new thread"),
    ("The table was emptied or made anew: try again.", _OLD_ROW),
    ("See whether it is overloaded or the network drops packets; io_timeout bounds the wait.", "no answer"),
)


class RowMissing(ServerError):
    """The row that was cached for a name is gone, or its id belongs to another name now."""

    def __init__(self) -> None:
        super().__init__("", _OLD_ROW)


@dataclass(frozen=True, slots=True)
class ServerLock:
    """The lock of a key, as it is written in SQL."""

    #: On PostgreSQL, the number of the name's row; on MariaDB and MySQL, a digest, to be put in quotes.
    id: str
    #: The literal of the key, which is the name with its prefix.
    name: str


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """One session that has the lock of *key* or waits for it, as the server shows it."""

    key: str
    #: The server's id of the session.
    session: int
    #: Seconds that the session has waited; None: it has the lock.
    waited: float | None
    #: A description of the session, for operators.
    description: str
    #: The host and pid of the session's process; "" and 0 if the server does not know them.
    host: str = ""
    pid: int = 0


class Dialect(Protocol):
    """The SQL of one database, for the server at *url*.

    A method that takes *execute* runs statements with it, and raises what `ServerConnection` does. For
    `take`, `accept`, `release` and `raise_fence` that has to be in the session that has, or takes, the lock.

    *pools_sessions*: whether the site says that a proxy before the server pools whole sessions.
    """

    #: The name of the database, for errors.
    database: ClassVar[str]
    #: The base class of the exceptions of the database's library.
    library_errors: ClassVar[type[Exception]]
    #: Each entry is a remedy, and the codes, or parts of the texts, of the errors that it mends. The first
    #: match counts.
    remedies: ClassVar[tuple[tuple[str, ...], ...]]
    #: By the code of an error that does not pass by itself: what the server lacks, and the remedy.
    lacking: ClassVar[dict[str, tuple[str, str]]]
    #: The entry of `lacking` for a server without our tables.
    TABLES: ClassVar[tuple[str, str]] = ("what locks need", _PREPARE)
    #: The server and the database, as shown to people, without a password.
    shown: str
    pools_sessions: bool

    def __init__(self, url: str, pools_sessions: bool) -> None:
        self.pools_sessions = pools_sessions

    def open(self, deadline: float, patience: float, waits: bool) -> tuple[ServerConnection, int]:
        """Open a session. Return its connection, and the id that the server has for it.

        *patience*: the longest time of a statement, in seconds. Without this bound, a long statement would
        keep the locks of a process that hangs, because its session is not idle. *waits*: the session is made
        for waits, and has no such bound. Raises `ConfigurationError` or `BackendUnavailable` if the server
        can't keep locks.
        """

    def lock_of(self, key: str, execute: Execute, make: bool) -> ServerLock | None:
        """Return the lock of *key*.

        If the lock is identified by a row of the table, and there is none yet, insert it, or return None if
        *make* is False.
        """

    def forget(self) -> None:
        """Forget cached locks, which may be wrong by now."""

    def take(self, execute: Execute, lock: ServerLock, ttl: float, span: int) -> int | None:
        """Take the lock if it is free and no session waits for it.

        Return the first of *span* new fence numbers; None: the lock is not free. Once the session has the
        lock, the server ends the session when it has been idle for *ttl* seconds. After a `ServerError` the
        session may have the lock.
        """

    def accept(self, execute: Execute, lock: ServerLock, ttl: float, span: int) -> int:
        """Set the lease to *ttl* seconds, and return a number as `take` does, for a lock got by waiting."""

    def wait(self, lock: ServerLock, window: float) -> str:
        """Return the statements that wait for the lock.

        If the lock is granted, and not accepted within *window* seconds, the server ends the session.
        """

    def check_granted(self, answer: list[Rows]) -> None:
        """Raise `ServerError` unless *answer*, the rows of the statements of `wait`, tells of a grant."""

    def release(self, execute: Execute, lock: ServerLock, last: bool) -> bool:
        """Release the lock. Return whether the session had it.

        *last*: the session holds no other lock, so it may be idle for longer.
        """

    def raise_fence(self, execute: Execute, lock: ServerLock, have: int, number: int, span: int) -> int:
        """Reserve *span* fence numbers above *number*, and return the first. Later reservations are larger.

        *have*: the hold's number, which is not above *number*. Raises `ConfigurationError` if the server
        can't count so far.
        """

    def has_granted(self, execute: Execute, lock: ServerLock, session: int) -> bool | None:
        """Return True if *session* has the lock, False if it waits, None if it does neither yet."""

    def cancel_wait(self, execute: Execute, lock: ServerLock, session: int) -> bool:
        """End the wait of *session*. Return False, and change nothing, if it has the lock.

        After True it may still have the lock, if that was granted at the same moment.
        """

    def is_locked(self, execute: Execute, lock: ServerLock) -> bool:
        """Return whether any session holds the lock."""

    def sessions_of(self, execute: Execute, key: str) -> Iterator[SessionStatus]:
        """Yield the holder of *key*, and then its waiters, the next one first."""

    def sessions_below(self, execute: Execute, prefix: str) -> Iterator[SessionStatus]:
        """Yield the sessions of all keys that begin with *prefix*."""

    def ending(self, session: int) -> str:
        """Return the statement with which an operator ends *session*."""

    def prepare(self, execute: Execute) -> str:
        """Make the tables unless they exist. Return a sentence that says that they exist."""

    def examine(self, execute: Execute, sessions: int) -> Iterator[Finding]:
        """Yield findings: see `distlock.backends.inspectable.Examinable`.

        *sessions*: how many sessions one process of distlock may open.
        """

    @contextmanager
    def translating_errors(self) -> Iterator[None]:
        """Turn exceptions of the block into the errors that callers get. `RowMissing` clears cached locks."""
        try:
            yield
        except LockError:
            raise
        except (ServerError, SessionLost, TimeoutError, self.library_errors) as error:
            if isinstance(error, RowMissing):
                self.forget()
            raised = self.error_for(error)
            raise raised from (error if isinstance(raised, BackendUnavailable) else None)

    def error_for(self, error: BaseException) -> LockError:
        """Return the error that a caller gets for *error*."""
        code = error.code if isinstance(error, ServerError) else ""
        # Leave out libpq's line that asks whether the server runs: the remedy says that.
        lines = [line for line in str(error).splitlines() if not line.endswith("?")]
        text = " ".join(" ".join(lines).split()).rstrip(".") or type(error).__name__
        # A server that is none, or something on the way, may say anything.
        text = "".join(one if one.isprintable() else "?" for one in text)
        if code in self.lacking:
            what, remedy = self.lacking[code]
            return self.unfit(f"lacks {what}: {text}. {remedy}")
        if isinstance(error, TimeoutError):
            text = "no answer in time"
        for remedy, *signs in (*self.remedies, *_REMEDIES):
            if any(sign == code or sign in text for sign in signs):
                return self.unavailable(text, remedy)
        return self.unavailable(text, "See the server's log.")

    def unavailable(self, why: str, remedy: str) -> BackendUnavailable:
        return BackendUnavailable(
            f"The {self.database} server at {self.shown} can't be used: {why}. {remedy}"
        )

    def unfit(self, why: str) -> ConfigurationError:
        return ConfigurationError(f"The {self.database} server at {self.shown} {why}")

    def proxy_error(self) -> ConfigurationError:
        """Return the error for a proxy that may give the session of a lock to other clients."""
        return ConfigurationError(
            f"Between this process and the {self.database} server at {self.shown} stands a proxy: the server "
            "answers from another session than the one that was opened. Where it pools transactions or "
            "statements, a lock would be left in a session that others get. Put the server itself in the "
            "URL, or, if the proxy pools whole sessions, say so: the option pools_sessions=True."
        )
