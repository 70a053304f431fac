"""The backend for a database server whose advisory locks belong to sessions."""

from __future__ import annotations

import math
import os
import random
import secrets
import select
import socket
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import ClassVar, TypeVar

from distlock.backends.base import Acquired, Busy, Capabilities, LockRequest, Queued, Sink
from distlock.backends.inspectable import MOST_SHOWN, Finding, KeyState, SeenProcess, StatusRow
from distlock.backends.sql.connection import Rows, SessionLost, poll
from distlock.backends.sql.dialect import Dialect, Execute, ServerLock, SessionStatus
from distlock.backends.sql.session import POLL, SessionHold, SQLSession
from distlock.backends.sql.sessions import SessionPool
from distlock.clock import now
from distlock.errors import LockError
from distlock.numbers import MOST_SECONDS, check_count, check_seconds

T = TypeVar("T")

#: Seconds between two polls of a waiter that has no session to wait in, on average.
_NO_SESSION = 0.1
#: Seconds between two checks whether the server has put a new waiter into its queue.
_QUEUED_SOON = 0.001


class SQLBackend:
    """One process's locks in the server at *url*.

    Args:
        url: Where the server is.
        io_timeout: The longest time of a call to the server, in seconds.
        ack_window: Seconds for which a hold lasts that was handed off and not acknowledged.
        max_connections: How many sessions may be open beside the main one, for waits or for holds with
            another ttl.
        pools_sessions: Whether a proxy before the server gives each connection a session of its own until
            the connection ends.
    """

    capabilities = Capabilities(several_processes=True, lease=True, fence=True, inspect=True)
    #: The SQL of the database.
    dialect: ClassVar[type[Dialect]]
    #: The id of this process: see `distlock.backends.inspectable.Inspectable`.
    process: str
    _pool: SessionPool

    def __init__(
        self,
        url: str,
        *,
        io_timeout: float = 2.0,
        ack_window: float = 0.5,
        max_connections: int = 8,
        pools_sessions: bool = False,
    ) -> None:
        self._io_timeout = check_seconds("io_timeout", io_timeout, most=MOST_SECONDS)
        self._ack_window = check_seconds("ack_window", ack_window, most=MOST_SECONDS)
        check_count("max_connections", max_connections)
        self._dialect = self.dialect(url, pools_sessions)
        self._max_connections = max_connections
        self._start_anew()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._dialect.shown}>"

    def open(self, sink: Sink) -> None:
        self._sink = sink  # Keeps the sink alive, because the pool refers to it weakly.
        self._pool.notify(sink)

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        deadline = self._by(deadline)
        with self._dialect.translating_errors():
            if (session := self._pool.of(request)) is not None:
                # If the session has ended, its lock and its place in the queue are lost: begin anew.
                with suppress(SessionLost), self._using(session, deadline):
                    if session.waiting is not None and not self._is_answered(session, deadline):
                        return Queued(POLL)
                    if session.has(request) and (held := session.accept(request, deadline)) is not None:
                        return held
            with self._executing(deadline) as execute:
                lock = self._dialect.lock_of(request.key, execute, make=True)
            assert lock is not None
            session = self._pool.for_hold(request, deadline)
            with self._using(session, deadline):
                if session.may_take(request) and (held := session.take(request, lock, deadline)) is not None:
                    return held
            return self._wait(request, lock, deadline) if request.wait else Busy()

    def _wait(self, request: LockRequest, lock: ServerLock, deadline: float) -> Acquired | Queued:
        session = self._pool.for_wait(request, lock, deadline)
        if session is None:
            return Queued(_NO_SESSION * random.uniform(0.5, 1.5))  # noqa: S311
        held = None
        # If the session has ended, as it does after `ack_window`, its place in the queue is lost: begin anew.
        with suppress(SessionLost), self._using(session, deadline):
            held = session.accept(request, deadline) if self._is_answered(session, deadline) else None
        if held is not None:
            return held
        if session.closed:
            return Queued(_NO_SESSION)
        self._pool.listen()
        return Queued(POLL)

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        def leave(session: SQLSession, deadline: float) -> bool:
            hold = self._hold_in(session, request, deadline)
            if hold is None or hold.granted:
                return hold is not None
            session.release(hold, deadline)
            return False

        return self._call(leave, request, deadline) or False

    def renew(self, requests: Sequence[LockRequest]) -> list[bool | None]:
        #: Whether each session lives; None: that is unknown.
        lives: dict[SQLSession, bool | None] = {}
        failure: LockError | None = None
        where = [self._pool.of(request) for request in requests]
        for session in dict.fromkeys(filter(None, where)):
            # A session that hangs must not delay the renewal of holds in other sessions.
            deadline = now() + min(self._io_timeout, max(0.1, session.ttl / 6))
            try:
                with self._dialect.translating_errors(), self._using(session, deadline):
                    session.ping(deadline)
                lives[session] = True
            except LockError as error:
                lives[session], failure = (False if session.closed else None), error
        renewed = [
            session is not None and lives[session] and session.has(request)
            for session, request in zip(where, requests, strict=True)
        ]
        if failure is not None and all(one is None for one in renewed):
            raise failure
        return renewed

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        def release(session: SQLSession, deadline: float) -> bool:
            hold = self._hold_in(session, request, deadline)
            return hold is not None and session.release(hold, deadline)

        return self._call(release, request, deadline) or False

    def has_ended(self, request: LockRequest) -> bool:
        """Return whether *request* has no living session: see `distlock.backends.protocols.SeesEnd`."""
        session = self._pool.of(request)
        return session is None or session.has_ended()

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        def raise_fence(session: SQLSession, deadline: float) -> Acquired | None:
            hold = session.holds.get(request.key)
            if hold is None or not hold.granted or not hold.number:
                return None
            return session.raise_fence(hold, number, deadline)

        return self._call(raise_fence, request, math.inf)

    def _call(
        self, call: Callable[[SQLSession, float], T], request: LockRequest, deadline: float
    ) -> T | None:
        """Return the result of *call* with the session of *request*; None if that is missing or has ended."""
        deadline = self._by(deadline)
        with self._dialect.translating_errors():
            if (session := self._pool.of(request)) is not None:
                with suppress(SessionLost), self._using(session, deadline):
                    return call(session, deadline)
        return None

    def locked(self, key: str) -> bool:
        with self._dialect.translating_errors(), self._executing(self._by(math.inf)) as execute:
            lock = self._dialect.lock_of(key, execute, make=False)
            return lock is not None and self._dialect.is_locked(execute, lock)

    def prepare(self) -> str:
        """Make the tables: see `distlock.backends.protocols.Prepares`."""
        with self._dialect.translating_errors(), self._executing(self._by(math.inf)) as execute:
            return self._dialect.prepare(execute)

    def examine(self) -> Iterator[Finding]:
        """Return findings: see `distlock.backends.inspectable.Examinable`."""
        with self._dialect.translating_errors(), self._executing(self._by(math.inf)) as execute:
            return iter([*self._dialect.examine(execute, 1 + self._max_connections)])

    def inspect(self, key: str, deadline: float = math.inf) -> KeyState:
        with self._dialect.translating_errors(), self._executing(deadline) as execute:
            found = list(self._dialect.sessions_of(execute, key))
        holder = next((one for one in found if one.waited is None), None)
        queue = [self._process_of(one) for one in found if one.waited is not None]
        shown, waiting = queue[:MOST_SHOWN], len(queue)
        if holder is None:
            return KeyState(queue=shown, waiting=waiting)
        ended_by = self._dialect.ending(holder.session)
        return KeyState(self._process_of(holder), None, None, shown, waiting, ended_by=ended_by)

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[SeenProcess]:
        with self._dialect.translating_errors(), self._executing(deadline) as execute:
            for one in self._dialect.sessions_below(execute, before):
                yield self._process_of(one)

    def close(self) -> None:
        self._dialect.forget()
        self._pool.close(now() + self._io_timeout)
        self.process = secrets.token_hex(8)

    def after_fork(self) -> None:
        inherited = self._pool
        self._finalizer.detach()
        self._start_anew()
        self._pool.sink = inherited.sink
        inherited.forget()

    def _start_anew(self) -> None:
        self.process = secrets.token_hex(8)
        self._pool = SessionPool(self._dialect, self._max_connections, self._io_timeout, self._ack_window)
        # This closes the sessions of a backend that is dropped without close(). At exit, the operating system
        # closes them.
        self._finalizer = weakref.finalize(self, self._pool.close_later)
        self._finalizer.atexit = False

    def _is_answered(self, session: SQLSession, deadline: float) -> bool:
        """Begin the wait of *session* if necessary. Return whether the wait is over.

        The caller is in a block of `_using`.
        """
        assert session.waiting is not None
        if session.connection.sent_at is None:
            session.start_waiting()
        while not session.connection.is_answered():
            # The server may have granted the lock, and not answered yet. Ask, so that this request gets the
            # lock, and not only the next one.
            with self._executing(deadline) as execute:
                granted = self._dialect.has_granted(execute, session.waiting[1], session.number)
            if granted is not None or now() >= deadline:
                return bool(granted)
            # Until the server has begun the statement, the session is not in its queue, and later
            # requests could be served first.
            poll(session.connection.fileno, select.POLLIN, _QUEUED_SOON)
        return True

    def _hold_in(self, session: SQLSession, request: LockRequest, deadline: float) -> SessionHold | None:
        """End the wait of *request*, if any. Return its hold; None: it has none.

        The caller is in a block of `_using`.
        """
        if session.waiting is not None and not self._end_wait(session, deadline):
            return None
        return session.holds.get(request.key)

    def _end_wait(self, session: SQLSession, deadline: float) -> bool:
        """End the wait of *session*. Return whether it got the lock. The caller is in a block of `_using`."""
        assert session.waiting is not None
        if not session.connection.is_answered():
            try:
                with self._executing(deadline) as execute:
                    cancelled = self._dialect.cancel_wait(execute, session.waiting[1], session.number)
                if cancelled:
                    return session.finish_cancelled_wait(deadline)
            except BaseException:
                # Close the session: if the server still grants the lock, the lock ends when the server
                # notices that the session is gone.
                self._pool.discard(session)
                raise
        session.finish_wait(deadline)
        return True

    def _process_of(self, one: SessionStatus) -> SeenProcess:
        if one.waited is None:
            row = StatusRow(one.key, held=True)
        else:
            row = StatusRow(one.key, waiting=1, waiting_since=round(time.time() - one.waited, 1))
        if self._pool.has(one.session):
            return SeenProcess(self.process, socket.gethostname(), os.getpid(), row)
        return SeenProcess(one.description, one.host, one.pid, row)

    @contextmanager
    def _executing(self, deadline: float) -> Iterator[Execute]:
        """Yield a function that executes statements in the main session.

        Other threads may use the session between two calls of the function. Remove the session if the block
        can't read one of its answers.
        """
        used: SQLSession | None = None

        def execute(text: str) -> list[Rows]:
            nonlocal used
            # There may be any number of calls, so each has a timeout of its own.
            by = self._by(deadline)
            used = self._pool.main(by)
            with self._using(used, by):
                return used.connection.call(text, by)

        try:
            yield execute
        except SessionLost:
            if used is not None:
                self._pool.lose(used)
            raise

    def _by(self, deadline: float) -> float:
        """Return the deadline of a call that begins now: io_timeout from now, but not after *deadline*."""
        return min(deadline, now() + self._io_timeout)

    @contextmanager
    def _using(self, session: SQLSession, deadline: float) -> Iterator[None]:
        """Let no other thread use *session* during the block. Remove the session if it breaks."""
        try:
            with session.exclusive(deadline):
                yield
        finally:
            if session.closed:
                self._pool.lose(session)
