"""A process's locks in a server whose advisory locks belong to sessions."""

from __future__ import annotations

import math
import random
import secrets
import weakref
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import ClassVar

from distlock.backends.advisory.dialect import Dialect, Rows, ServerLock
from distlock.backends.advisory.failures import Gone, Refused, Vanished
from distlock.backends.advisory.inspection import Inspection
from distlock.backends.advisory.session import POLL, Session
from distlock.backends.advisory.sessions import Sessions
from distlock.backends.base import Acquired, Busy, Capabilities, LockRequest, Queued, Sink
from distlock.backends.findings import Finding
from distlock.backends.weak_sink import WeakSink
from distlock.clock import now
from distlock.errors import BackendUnavailable, LockError
from distlock.numbers import LONG, check_count, check_seconds

#: Seconds between two looks of one that found no session to wait in.
_ASIDE = 0.1
#: Seconds between two looks whether a request has come to the line.
_SOON = 0.001


class AdvisoryBackend(Inspection):
    """One process's locks in the server at *url*.

    *io_timeout* bounds each request; *ack_window* is what a lock that was handed off is worth until it is
    taken: seconds. *max_connections*: how many sessions may wait, beside the one that asks. *pools_sessions*:
    a proxy in between gives each connection a session of its own, as long as it lasts.
    """

    capabilities = Capabilities(several_processes=True, lease=True, fence=True, inspect=True)
    #: The exceptions of the database's library, beside those of a `Wire`.
    errors: ClassVar[type[Exception]]

    @staticmethod
    @abstractmethod
    def speaking(url: str, pools_sessions: bool) -> Dialect:
        """How to speak to that server. Connects to nothing."""

    def __init__(
        self,
        url: str,
        *,
        io_timeout: float = 2.0,
        ack_window: float = 0.5,
        max_connections: int = 8,
        pools_sessions: bool = False,
    ) -> None:
        self._io_timeout = check_seconds("io_timeout", io_timeout, most=LONG)
        self._ack_window = check_seconds("ack_window", ack_window, most=LONG)
        check_count("max_connections", max_connections)
        self._dialect = self.speaking(url, pools_sessions)
        self._max_connections = max_connections
        self._begin()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._dialect.shown}>"

    def open(self, sink: Sink) -> None:
        # Held here: nobody else may hold it.
        self._sink = sink
        self._sessions.ears = WeakSink(sink)

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        until = self._until(deadline)
        with self._told():
            if (session := self._sessions.of(request)) is not None:
                # Where it has ended its lock is free, and its place is lost.
                with suppress(Gone), self._speaking(session, until):
                    if session.waits is not None and not self._has_come(session, until):
                        return Queued(POLL)
                    if session.has(request) and (held := session.again(request, until)) is not None:
                        return held
            lock = self._lock_of(request.key, until, make=True)
            assert lock is not None
            session = self._sessions.for_hold(request, until)
            with self._speaking(session, until):
                if session.has_room(request) and (held := session.take(request, lock, until)) is not None:
                    return held
            return self._wait(request, lock, until) if request.wait else Busy()

    def _wait(self, request: LockRequest, lock: ServerLock, until: float) -> Acquired | Queued:
        session = self._sessions.for_wait(request, lock, until)
        if session is None:
            return Queued(_ASIDE * random.uniform(0.5, 1.5))  # noqa: S311
        with self._speaking(session, until):
            held = session.again(request, until) if self._has_come(session, until) else None
        if held is not None:
            return held
        self._sessions.listen()
        return Queued(POLL)

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        until = self._until(deadline)
        with self._told():
            session = self._sessions.of(request)
            if session is None:
                return False
            with suppress(Gone), self._speaking(session, until):
                if session.waits is not None and not self._is_granted(session, until):
                    return False
                hold = session.holds.get(request.key)
                if hold is None or hold.granted:
                    return hold is not None
                session.give_back(hold, until)
            return False

    def renew(self, requests: Sequence[LockRequest]) -> list[bool | None]:
        answers: dict[Session, bool | None] = {}
        trouble: LockError | None = None
        where = [self._sessions.of(request) for request in requests]
        for session in where:
            if session is not None and session not in answers:
                # One that hangs must not cost the holds of another, which have to be renewed meanwhile.
                until = now() + min(self._io_timeout, max(0.1, session.ttl / 6))
                try:
                    with self._told(), self._speaking(session, until):
                        session.ping(until)
                    answers[session] = True
                except LockError as error:
                    answers[session], trouble = (False if session.gone else None), error
        found = [
            self._still(session, request, answers) for session, request in zip(where, requests, strict=True)
        ]
        if trouble is not None and all(one is None for one in found):
            raise trouble
        return found

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        until = self._until(deadline)
        with self._told():
            session = self._sessions.of(request)
            if session is None:
                return False
            with suppress(Gone), self._speaking(session, until):
                if session.waits is not None and not self._is_granted(session, until):
                    return False
                hold = session.holds.get(request.key)
                return hold is not None and session.give_back(hold, until)
            return False

    def has_ended(self, request: LockRequest) -> bool:
        """See `distlock.backends.optional.SeesEnd`."""
        session = self._sessions.of(request)
        return session is None or session.has_ended()

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        until = self._until(math.inf)
        with self._told():
            session = self._sessions.of(request)
            if session is None:
                return None
            with suppress(Gone), self._speaking(session, until):
                hold = session.holds.get(request.key)
                if hold is None or not hold.granted or not hold.number:
                    return None
                return session.lift(hold, number, until)
            return None

    def locked(self, key: str) -> bool:
        until = self._until(math.inf)
        with self._told():
            lock = self._lock_of(key, until, make=False)
            if lock is None:
                return False
            with self._at_desk(until) as desk:
                return self._dialect.held(desk.saying(until), lock)

    def prepare(self) -> str:
        """See `distlock.backends.optional.Prepares`."""
        until = self._until(math.inf)
        with self._told(), self._at_desk(until) as desk:
            return self._dialect.prepare(desk.saying(until))

    def examine(self) -> Iterator[Finding]:
        """See `distlock.backends.findings.Examinable`."""
        until = self._until(math.inf)
        with self._told(), self._at_desk(until) as desk:
            return iter([*self._dialect.examine(desk.saying(until), 1 + self._max_connections)])

    def close(self) -> None:
        self._dialect.forget()
        self._sessions.close(now() + self._io_timeout)
        self.process = secrets.token_hex(8)

    def after_fork(self) -> None:
        inherited = self._sessions
        self._finalizer.detach()
        self._begin()
        self._sessions.ears = inherited.ears
        inherited.forget()

    def _begin(self) -> None:
        self.process = secrets.token_hex(8)
        self._sessions = Sessions(self._dialect, self._max_connections, self._io_timeout, self._ack_window)
        # The last chance of a backend that is dropped without a word. At exit there is the process's end.
        self._finalizer = weakref.finalize(self, self._sessions.leave_alone)
        self._finalizer.atexit = False

    def _has_come(self, session: Session, until: float) -> bool:
        """Whether *session* has what it waits for. In a block of `_speaking`."""
        assert session.waits is not None
        if session.wire.since is None:
            session.begin_to_wait()
        while not session.wire.is_answered():
            # The server may have given it the lock, and not said so yet: who asks now is to be told.
            with self._at_desk(until) as desk:
                stands = self._dialect.stands(desk.saying(until), session.waits[1], session.number)
            if stands is not None or now() >= until:
                return bool(stands)
            # Nor is it in the line before the server has come to its request: those after us would pass.
            session.wire.hear(_SOON)
        return True

    def _is_granted(self, session: Session, until: float) -> bool:
        """Take *session* out of the line, unless it has what it waits for. In a block of `_speaking`."""
        assert session.waits is not None
        if not session.wire.is_answered():
            try:
                with self._at_desk(until) as desk:
                    called = self._dialect.call_off(desk.saying(until), session.waits[1], session.number)
                if called:
                    return session.called_off(until)
            except BaseException:
                # If the server still grants it, the lock is free when the server notices that the session is
                # gone.
                self._sessions.drop(session)
                raise
        session.granted(until)
        return True

    def _still(
        self, session: Session | None, request: LockRequest, answers: dict[Session, bool | None]
    ) -> bool | None:
        if session is None:
            return False
        return session.has(request) if answers[session] else answers[session]

    def _lock_of(self, key: str, until: float, make: bool) -> ServerLock | None:
        return self._dialect.lock_of(key, partial(self._say, until=until), make)

    def _say(self, text: str, until: float) -> list[Rows]:
        with self._at_desk(until) as desk:
            return desk.call(text, until)

    @contextmanager
    def _at_desk(self, until: float) -> Iterator[Session]:
        desk = self._sessions.desk(until)
        with self._speaking(desk, until):
            yield desk

    @contextmanager
    def _speaking(self, session: Session, until: float) -> Iterator[None]:
        """In *session*, alone. One that breaks is lost."""
        try:
            with session.taken(until):
                yield
        finally:
            if session.gone:
                self._sessions.lose(session)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn exceptions of the block into the errors that callers get."""
        try:
            yield
        except (Refused, Gone, TimeoutError, self.errors) as error:
            if isinstance(error, Vanished):
                self._dialect.forget()
            told = self._dialect.told(error)
            raise told from (error if isinstance(told, BackendUnavailable) else None)

    def _until(self, deadline: float) -> float:
        return min(deadline, now() + self._io_timeout)
