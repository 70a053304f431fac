"""One session of a server: its holds, or its wait for a lock. They end with the session."""

from __future__ import annotations

import math
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from distlock.backends.base import Acquired, LockRequest
from distlock.backends.sql.connection import (
    PEER_CLOSED,
    ServerConnection,
    ServerError,
    SessionLost,
    poll,
)
from distlock.backends.sql.dialect import Dialect, Execute, RowMissing, ServerLock
from distlock.clock import now

#: Seconds between two polls of a waiter, in case a notification is missed.
POLL = 1.0


@dataclass(slots=True)
class SessionHold:
    """A lock that the session has, or may have."""

    request: LockRequest
    lock: ServerLock
    #: Whether the server has confirmed that the session has the lock. False: that is unknown.
    granted: bool = False
    #: The first fence number; 0: it is not known yet.
    number: int = 0


@dataclass(slots=True, eq=False)
class SQLSession:
    """A session that holds locks, or waits for one lock.

    Attributes are written under *mutex*. The pool writes *waiting* and *closed* without it. The server ends a
    session that is idle for *ttl* seconds, which is the lease of its holds. A session is not idle while it
    waits, so a session that waits holds no lock. Methods raise what `ServerConnection` does.
    """

    dialect: Dialect
    connection: ServerConnection
    #: Seconds for which the server may be silent before a session without holds is given up.
    patience: float
    #: Seconds for which a lock lasts that was granted to a waiter and not accepted.
    window: float
    #: Whether this is the session that never waits.
    main: bool
    #: The server's id of the session.
    number: int
    mutex: threading.Lock = field(default_factory=threading.Lock)
    #: The holds, by key.
    holds: dict[str, SessionHold] = field(default_factory=dict)
    #: Seconds that the session may be idle while it holds a lock: the lease of its holds.
    ttl: float = 0.0
    #: The request for which the session waits, and its lock; None: it does not wait.
    waiting: tuple[LockRequest, ServerLock] | None = None
    #: Whether the sink was notified that the server has answered the wait.
    notified: bool = False
    #: Whether the session broke or was closed. No call uses it any more.
    closed: bool = False
    idle_since: float = field(default_factory=now)

    @contextmanager
    def exclusive(self, deadline: float) -> Iterator[None]:
        """Let no other thread use the session during the block. Set *closed* if the block breaks it.

        Raises `TimeoutError` if another thread uses it until *deadline*, and `SessionLost` if it is closed.
        """
        if not self.mutex.acquire(timeout=max(0.0, min(deadline - now(), threading.TIMEOUT_MAX))):
            raise TimeoutError
        try:
            if self.closed:
                raise SessionLost("the session is over")
            yield
        except SessionLost:
            self.closed = True
            raise
        except TimeoutError:
            # Keep a session with known holds for as long as the lease: if the server answers before its end,
            # the holds still exist.
            patience = self.ttl if any(hold.number for hold in self.holds.values()) else self.patience
            since = self.connection.sent_at
            self.closed = self.closed or (since is not None and now() - since > patience)
            raise
        except BaseException:
            self.closed = self.closed or self.connection.is_closed
            raise
        finally:
            self.idle_since = now()
            self.mutex.release()

    # -- called in a block of `exclusive` ------------------------------------------------------------

    def executing(self, deadline: float) -> Execute:
        return partial(self.connection.call, deadline=deadline)

    def ping(self, deadline: float) -> None:
        self.connection.call("SELECT 1", deadline)

    def may_take(self, request: LockRequest) -> bool:
        """Return whether `take` may be called: not while the session waits, nor if it may have the lock.

        The server grants a session its own lock once more, and then the lock has to be released twice.
        """
        return self.waiting is None and request.key not in self.holds

    def take(self, request: LockRequest, lock: ServerLock, deadline: float) -> Acquired | None:
        """Take the lock if it is free, or return None."""
        ttl = max(request.ttl, self.ttl) if self.holds else request.ttl
        hold = self.holds[request.key] = SessionHold(request, lock)
        with self._releasing_after(ServerError, hold, deadline):
            number = self.dialect.take(self.executing(deadline), lock, ttl, request.span)
        if number is None:
            del self.holds[request.key]
            return None
        self.ttl, hold.granted, hold.number = ttl, True, number
        return Acquired(number, request.ttl)

    def start_waiting(self) -> None:
        assert self.waiting is not None
        self.notified = False
        self.connection.send(self.dialect.wait(self.waiting[1], self.window))

    def accept(self, request: LockRequest, deadline: float) -> Acquired | None:
        """Finish the wait of *request*, or confirm the hold that it has, and return the hold.

        Return None, and release the lock, if it is unknown whether the session has it.
        """
        hold = self.holds.get(request.key) or self.finish_wait(deadline)
        if not hold.granted:
            self.release(hold, deadline)
            return None
        if hold.number:
            self.ping(deadline)
        else:
            self.ttl = request.ttl
            with self._releasing_after(ServerError, hold, deadline):
                hold.number = self.dialect.accept(
                    self.executing(deadline), hold.lock, request.ttl, hold.request.span
                )
        return Acquired(hold.number, request.ttl)

    def finish_wait(self, deadline: float) -> SessionHold:
        """Read the answer of the wait, and return the new hold."""
        try:
            self.dialect.check_granted(self.connection.answer(deadline))
        except ServerError:
            # Another session ended the wait. The lock may have been granted before, so end the session, and
            # the lock with it.
            self.waiting, self.closed = None, True
            raise
        return self._hold_what_came()

    def finish_cancelled_wait(self, deadline: float) -> bool:
        """Read the answer of a cancelled wait. Return whether the session has got the lock nevertheless."""
        assert self.waiting is not None
        try:
            self.dialect.check_granted(self.connection.answer(deadline))
        except ServerError:
            # If the lock was granted in the moment of the cancellation, it is ours in spite of the error.
            if not self.dialect.has_granted(self.executing(deadline), self.waiting[1], self.number):
                self.waiting = None
                return False
        self._hold_what_came()
        return True

    def _hold_what_came(self) -> SessionHold:
        assert self.waiting is not None
        request, lock = self.waiting
        self.holds[request.key] = SessionHold(request, lock, granted=True)
        self.waiting = None
        return self.holds[request.key]

    def release(self, hold: SessionHold, deadline: float) -> bool:
        """Release the lock. Return whether the session had it."""
        hold.granted = False
        ours = self.dialect.release(self.executing(deadline), hold.lock, len(self.holds) == 1)
        del self.holds[hold.request.key]
        return ours

    def raise_fence(self, hold: SessionHold, number: int, deadline: float) -> Acquired:
        """Give *hold* a number above *number*, unless it has one. Later holds of the key get larger ones."""
        if hold.number > number:
            self.ping(deadline)
        else:
            with self._releasing_after(RowMissing, hold, deadline):
                hold.number = self.dialect.raise_fence(
                    self.executing(deadline), hold.lock, hold.number, number, hold.request.span
                )
        return Acquired(hold.number, hold.request.ttl)

    @contextmanager
    def _releasing_after(
        self, errors: type[ServerError], hold: SessionHold, deadline: float
    ) -> Iterator[None]:
        """Release *hold* if the block, which gives it a number, raises one of *errors*."""
        try:
            yield
        except errors:
            self.release(hold, deadline)
            raise

    # -- called without `exclusive`, in any thread ---------------------------------------------------

    def has_ended(self) -> bool:
        """Return whether the session is known to be over. Looks only at its socket, and does not block."""
        if self.closed:
            return True
        # Bytes that arrive during a call may be its answer. Bytes without a call are the server's reason
        # for ending the session.
        readable = select.POLLIN if self.connection.sent_at is None else 0
        return poll(self.connection.fileno, PEER_CLOSED | readable, 0) != 0

    def has(self, request: LockRequest) -> bool:
        """Return whether *request* holds its lock, or waits for it, in this session."""
        hold, waiting = self.holds.get(request.key), self.waiting
        return (hold is not None and hold.request.token == request.token) or (
            waiting is not None and waiting[0].token == request.token
        )

    def is_free(self) -> bool:
        return not self.holds and self.waiting is None and not self.closed

    def idle(self) -> float:
        """Return for how many seconds the session has been free; -inf while it is in use."""
        return now() - self.idle_since if self.is_free() else -math.inf
