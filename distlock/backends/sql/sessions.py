"""The sessions of one process.

The main session never waits: it takes free locks, and makes all queries. Each other session waits for one
lock and then holds it, or holds locks with another ttl than the main session's. A thread listens to all
sessions. It notifies waiters, and closes sessions that ended or are not needed.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from distlock.backends.base import LockRequest, Sink, WeakSink
from distlock.backends.sql.connection import PEER_CLOSED, ServerError, SessionLost
from distlock.backends.sql.dialect import Dialect, ServerLock
from distlock.backends.sql.session import SQLSession
from distlock.clock import now

#: Seconds after which a free session is closed.
KEPT = 10.0
#: Seconds that the listener waits for a session that another thread uses. The other one notices events, too.
_BUSY = 0.05


@dataclass(eq=False)
class SessionPool:
    """The open sessions of one process.

    Args:
        dialect: The SQL of the database.
        most: How many sessions may be open beside the main one.
        patience: Seconds for which a server may be silent before a session is given up.
        window: Seconds for which a lock lasts that was granted to a waiter and not accepted.
    """

    _dialect: Dialect
    _most: int
    _patience: float
    _window: float
    sink: Sink | None = None
    #: Guards changes of `_all`, and the assignment of free sessions to waiters.
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _all: list[SQLSession] = field(default_factory=list)
    _opening: threading.Lock = field(default_factory=threading.Lock)
    _listener: SessionListener | None = None
    #: Whether a session broke, and none was opened since.
    _broken: bool = False

    def notify(self, sink: Sink) -> None:
        """Notify *sink* from now on. The reference is weak: the listener's thread must not keep it alive."""
        self.sink = WeakSink(sink)

    def of(self, request: LockRequest) -> SQLSession | None:
        """Return the session in which *request* holds its lock, or waits; None: there is none."""
        return next((session for session in self._all if session.has(request)), None)

    def has(self, number: int) -> bool:
        """Return whether the session with the server's id *number* is in this pool."""
        return any(session.number == number for session in self._all)

    def main(self, deadline: float) -> SQLSession:
        """Return the session that never waits. Open it if there is none."""
        if (found := self._main()) is not None:
            return found
        with self._opening_alone(deadline):
            return self._main() or self._open(deadline, main=True)

    def for_hold(self, request: LockRequest, deadline: float) -> SQLSession:
        """Return a session that may hold *request*, if possible one whose holds have the same ttl."""
        main = self.main(deadline)
        if not main.holds or main.ttl == request.ttl:
            return main
        with self._mutex:
            others = [session for session in self._all if session.waiting is None and not session.closed]
        # If no other session can be opened, all holds of the main session get the longest of their ttls.
        return (
            next((one for one in others if one.holds and one.ttl == request.ttl), None)
            or next((one for one in others if one.is_free()), None)
            or self._open_another(deadline)
            or main
        )

    def for_wait(self, request: LockRequest, lock: ServerLock, deadline: float) -> SQLSession | None:
        """Mark a free session as waiting for *request*, and return it; None if no more can be opened."""
        found = self._for_wait(request, lock)
        # Another caller may take the new session, or free one for this caller.
        if found is None and self._open_another(deadline) is not None:
            found = self._for_wait(request, lock)
        return found

    def _for_wait(self, request: LockRequest, lock: ServerLock) -> SQLSession | None:
        with self._mutex:
            for session in self._all:
                if session.is_free() and not session.main:
                    session.waiting = request, lock
                    return session
        return None

    def discard(self, session: SQLSession) -> None:
        """Close *session* without notifying the sink. The caller is in a block of its `exclusive`."""
        session.closed = True
        with self._mutex, suppress(ValueError):
            self._all.remove(session)
        session.connection.close()

    def lose(self, session: SQLSession) -> None:
        """Remove *session*, which broke. Report its holds as lost to the sink, and notify its waiter."""
        session.closed = True
        with self._mutex:
            if session not in self._all:
                return
            self._all.remove(session)
            self._broken = True
        with session.mutex:
            session.connection.close()
            lost, waiting = list(session.holds.values()), session.waiting
            session.holds.clear()
            session.waiting = None
        if self.sink is not None:
            for hold in lost:
                self.sink.lost(hold.request.key, hold.request.token)
            if waiting is not None:
                self.sink.notified(waiting[0].key)

    def listen(self) -> None:
        """Wake the listener, because a session has just begun to wait."""
        with self._mutex:
            if self._listener is not None:
                self._listener.wake()

    def close_idle(self, idle: float) -> list[SQLSession]:
        """Close the sessions that have been free for *idle* seconds. Return the others."""
        for session in list(self._all):
            if session.idle() > idle and session.mutex.acquire(blocking=False):
                try:
                    with self._mutex:
                        if not session.idle() > idle:
                            continue
                        session.closed = True
                        self._all.remove(session)
                    session.connection.close()
                finally:
                    session.mutex.release()
        return list(self._all)

    def dismiss(self, listener: SessionListener) -> bool:
        """Return whether *listener* may end: no session is open, or the pool has dropped this listener."""
        with self._mutex:
            if self._listener is listener and self._all:
                return False
            if self._listener is listener:
                self._listener = None
            return True

    def close_later(self) -> None:
        """Have the listener close all sessions, without waiting for it."""
        if (listener := self._listener) is not None:
            listener.close_later()

    def close_connections(self) -> None:
        """Close all connections. The listener calls this after `close_later`: no other thread uses them."""
        for session in self._all:
            session.connection.close()

    def close(self, deadline: float) -> None:
        with self._mutex:
            taken, self._all = self._all, []
            listener, self._listener = self._listener, None
            self._broken = False
        if listener is not None:
            listener.stop()
        # Close the main session last. It cancels the waits of the others, because a server does not notice
        # the end of a client that waits.
        taken.sort(key=lambda session: not session.main)
        main = taken[0] if taken and taken[0].main else None
        for session in reversed(taken):
            if session.waiting is not None and main is not None:
                with (
                    suppress(TimeoutError, SessionLost, ServerError),
                    session.exclusive(deadline),
                    main.exclusive(deadline),
                ):
                    # Another thread may have ended the wait meanwhile.
                    if (waiting := session.waiting) is not None:
                        self._dialect.cancel_wait(main.executing(deadline), waiting[1], session.number)
                        session.connection.answer(deadline)
            # Wait for a call in progress, whose time is bounded.
            alone = session.mutex.acquire(timeout=max(self._patience, deadline - now()))
            session.closed = True
            session.connection.close()
            if alone:
                session.mutex.release()

    def forget(self) -> None:
        """Close our copies of the parent's sockets, in a forked child."""
        if self._listener is not None:
            self._listener.forget()
        for session in self._all:
            with suppress(OSError):
                session.connection.forget()

    def _main(self) -> SQLSession | None:
        return next((session for session in self._all if session.main and not session.closed), None)

    def _open_another(self, deadline: float) -> SQLSession | None:
        """Open one more session. Return None if our limit is reached, or the server refuses."""
        with self._opening_alone(deadline), suppress(SessionLost, ServerError):
            if len(self._all) <= self._most:
                return self._open(deadline, main=False)
        return None

    @contextmanager
    def _opening_alone(self, deadline: float) -> Iterator[None]:
        """Let no other thread open a session during the block. Raises `TimeoutError`."""
        if not self._opening.acquire(timeout=max(0.0, deadline - now())):
            raise TimeoutError
        try:
            yield
        finally:
            self._opening.release()

    def _open(self, deadline: float, main: bool) -> SQLSession:
        connection, number = self._dialect.open(deadline, self._patience, waits=not main)
        try:
            made = SQLSession(self._dialect, connection, self._patience, self._window, main, number)
            with self._mutex:
                if self._listener is None:
                    self._listener = SessionListener(self)
                self._all.append(made)
                self._listener.wake()
                is_reconnect, self._broken = self._broken, False
        except BaseException:
            connection.close()
            raise
        if is_reconnect and self.sink is not None:
            self.sink.reconnected()
        return made


class SessionListener:
    """The thread that listens to the sessions of a pool, until the last of them is closed."""

    def __init__(self, pool: SessionPool) -> None:
        self._pool = pool
        try:
            #: A pipe that wakes the thread.
            self._wakes, self._waker = os.pipe()
        except OSError as error:
            raise SessionLost(str(error)) from error
        os.set_blocking(self._wakes, False)
        os.set_blocking(self._waker, False)
        self._stopped = self._closes_all = False
        #: Guards the pipe. Reentrant, because a garbage collection may call `wake` in a thread that holds it.
        self._mutex = threading.RLock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="distlock-sessions", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.forget()
            raise SessionLost(str(error)) from error

    def wake(self) -> None:
        """Have the thread read the list of sessions anew."""
        # If the pipe is full, the thread wakes anyway.
        with self._mutex, suppress(BlockingIOError):
            if not self._closed:
                os.write(self._waker, b".")

    def stop(self) -> None:
        """End the thread, and wait for its end."""
        self._stopped = True
        self.wake()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def close_later(self) -> None:
        """Have the thread close all sessions and end. Does not wait for that."""
        self._closes_all = self._stopped = True
        self.wake()

    def forget(self) -> None:
        """Close the pipe, when the thread ends or could not be started, or in a forked child."""
        self._closed = True
        os.close(self._wakes)
        os.close(self._waker)

    def _run(self) -> None:
        try:
            while not self._stopped:
                sessions = self._pool.close_idle(KEPT)
                if not sessions and self._pool.dismiss(self):
                    return
                self._listen({one.connection.fileno: one for one in sessions if not one.closed})
            if self._closes_all:
                self._pool.close_connections()
        finally:
            with self._mutex:
                self.forget()

    def _listen(self, sessions: dict[int, SQLSession]) -> None:
        """Wait up to half of `KEPT` for events of *sessions*, by descriptor, and handle them."""
        poller = select.poll()
        poller.register(self._wakes, select.POLLIN)
        for fileno, session in sessions.items():
            pending = session.waiting is not None and not session.notified
            poller.register(fileno, PEER_CLOSED | (select.POLLIN if pending else 0))
        for fileno, _ in poller.poll(KEPT * 1000 / 2):
            if fileno == self._wakes:
                with suppress(BlockingIOError):
                    os.read(self._wakes, 4096)
            else:
                self._handle(sessions[fileno])

    def _handle(self, session: SQLSession) -> None:
        """Notify the waiter of *session* if its answer is here. Remove the session if it has ended."""
        if not session.mutex.acquire(timeout=_BUSY):
            return
        waiting = None
        try:
            if session.closed:
                return
            if session.waiting is None:
                # Raises if the session has ended. Otherwise a call has read the bytes meanwhile.
                session.connection.is_answered()
            elif session.connection.is_answered():
                session.notified, waiting = True, session.waiting[0]
        except SessionLost:
            session.closed = True
        finally:
            session.mutex.release()
        if session.closed:
            self._pool.lose(session)
        elif waiting is not None and self._pool.sink is not None:
            self._pool.sink.notified(waiting.key)
