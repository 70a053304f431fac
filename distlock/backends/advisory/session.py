"""One session: what it holds, or what it waits for. Both end with it."""

from __future__ import annotations

import math
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from distlock.backends.advisory.dialect import Dialect, Rows, Say, ServerLock, Wire
from distlock.backends.advisory.failures import Gone, Refused, Vanished
from distlock.backends.base import Acquired, LockRequest
from distlock.clock import now

#: The event of a socket whose other end has said that it is over. Where the system has none, only a reset
#: is seen at once, and the rest with the next renewal.
ENDED = getattr(select, "POLLRDHUP", 0)
#: Seconds until a waiter looks again. It is told: this is the net.
POLL = 1.0


@dataclass(slots=True)
class Taken:
    """A lock that the session has, or may have."""

    request: LockRequest
    lock: ServerLock
    #: The server has said that it is ours. Until then it is not known.
    granted: bool = False
    #: 0: not known yet.
    number: int = 0


class Session:
    """What is written under *mutex*; *waits* also by who hands the session out. Raises what `Wire` does.

    A session that waits holds nothing: while it waits it is not idle, and its holds would have no lease.
    """

    def __init__(
        self, dialect: Dialect, wire: Wire, patience: float, window: float, desk: bool, number: int
    ) -> None:
        self.wire = wire
        self.mutex = threading.Lock()
        #: The one that never waits.
        self.desk = desk
        #: The server's number for it, which a proxy may hide.
        self.number = number
        #: By key.
        self.holds: dict[str, Taken] = {}
        #: How long it may be idle while it holds something, seconds.
        self.ttl = 0.0
        self.waits: tuple[LockRequest, ServerLock] | None = None
        #: Its waiter was told to look.
        self.told = False
        #: It broke or was closed: nothing is asked in it any more.
        self.gone = False
        self.idle_since = now()
        self._dialect = dialect
        self._patience = patience
        self._window = window

    @contextmanager
    def taken(self, deadline: float) -> Iterator[None]:
        """For the block nobody else speaks in it."""
        if not self.mutex.acquire(timeout=max(0.0, min(deadline - now(), threading.TIMEOUT_MAX))):
            raise TimeoutError
        try:
            if self.gone:
                raise Gone("the session is over")
            yield
        except Gone:
            self.gone = True
            raise
        except TimeoutError:
            # A server that comes back may still answer for what it holds.
            patience = self.ttl if self.holds else self._patience
            self.gone = self.wire.since is not None and now() - self.wire.since > patience
            raise
        except BaseException:
            self.gone = self.gone or self.wire.is_closed
            raise
        finally:
            self.idle_since = now()
            self.mutex.release()

    # -- each of these in a block of `taken` ---------------------------------------------------------

    def call(self, text: str, deadline: float) -> list[Rows]:
        return self.wire.call(text, deadline)

    def saying(self, deadline: float) -> Say:
        return partial(self.call, deadline=deadline)

    def ping(self, deadline: float) -> None:
        self.call(self._dialect.ping, deadline)

    def has_room(self, request: LockRequest) -> bool:
        """Whether *request* may try here. The server lets one session have its own lock twice."""
        return self.waits is None and request.key not in self.holds

    def take(self, request: LockRequest, lock: ServerLock, deadline: float) -> Acquired | None:
        """Taken it if it is free."""
        ttl = max(request.ttl, self.ttl) if self.holds else request.ttl
        hold = self.holds[request.key] = Taken(request, lock)
        with self._given_back(hold, Refused, deadline):
            number = self._dialect.take(self.saying(deadline), lock, ttl, request.span)
        if number is None:
            del self.holds[request.key]
            return None
        self.ttl, hold.granted, hold.number = ttl, True, number
        return Acquired(number, request.ttl)

    def begin_to_wait(self) -> None:
        assert self.waits is not None
        self.told = False
        self.wire.send(self._dialect.wait(self.waits[1], self._window))

    def again(self, request: LockRequest, deadline: float) -> Acquired | None:
        """Handle that *request* no longer waits here, and return its hold.

        None: nothing, and it stands here no more.
        """
        hold = self.holds.get(request.key) or self.granted(deadline)
        if not hold.granted:
            self.give_back(hold, deadline)
            return None
        if hold.number:
            self.ping(deadline)
        else:
            self.ttl = request.ttl
            with self._given_back(hold, Refused, deadline):
                hold.number = self._dialect.accept(
                    self.saying(deadline), hold.lock, request.ttl, hold.request.span
                )
        return Acquired(hold.number, request.ttl)

    def granted(self, deadline: float) -> Taken:
        """The wait is over: what it gave."""
        try:
            self._dialect.check_had(self.wire.answer(deadline))
        except Refused:
            # Another session has ended the wait, and the lock may have come first. It ends with the session.
            self.waits, self.gone = None, True
            raise
        return self._keep()

    def called_off(self, deadline: float) -> bool:
        """The server was told to end the wait. Whether it had given the lock before."""
        assert self.waits is not None
        try:
            self._dialect.check_had(self.wire.answer(deadline))
        except Refused:
            # A lock that came in the same moment as the cancellation is ours, although the server does not
            # say so.
            if not self._dialect.stands(self.saying(deadline), self.waits[1], self.number):
                self.waits = None
                return False
        self._keep()
        return True

    def _keep(self) -> Taken:
        assert self.waits is not None
        request, lock = self.waits
        self.holds[request.key] = Taken(request, lock, granted=True)
        self.waits = None
        return self.holds[request.key]

    def give_back(self, hold: Taken, deadline: float) -> bool:
        """Whether it was ours."""
        hold.granted = False
        ours = self._dialect.give_back(self.saying(deadline), hold.lock, len(self.holds) == 1)
        del self.holds[hold.request.key]
        return ours

    def lift(self, hold: Taken, number: int, deadline: float) -> Acquired:
        """Give *hold* a number above *number*, and all later ones of its name larger ones."""
        if hold.number > number:
            self.ping(deadline)
        else:
            with self._given_back(hold, Vanished, deadline):
                hold.number = self._dialect.lift(
                    self.saying(deadline), hold.lock, hold.number, number, hold.request.span
                )
        return Acquired(hold.number, hold.request.ttl)

    @contextmanager
    def _given_back(self, hold: Taken, after: type[Refused], deadline: float) -> Iterator[None]:
        """A lock without a number is none."""
        try:
            yield
        except after:
            self.give_back(hold, deadline)
            raise

    # -- from anywhere -------------------------------------------------------------------------------

    def has_ended(self) -> bool:
        """Whether it is over, as far as its socket tells. Sends nothing, and waits for nothing."""
        if self.gone:
            return True
        poller = select.poll()
        # Without a call under way all that arrives is why the session ends, which comes before the end of the
        # connection. With one, an answer may have arrived that its caller has not read yet.
        poller.register(self.wire.fileno, ENDED | (select.POLLIN if self.wire.since is None else 0))
        return bool(poller.poll(0))

    def has(self, request: LockRequest) -> bool:
        """Whether *request* stands here, held or waiting."""
        hold, waits = self.holds.get(request.key), self.waits
        return (hold is not None and hold.request.token == request.token) or (
            waits is not None and waits[0].token == request.token
        )

    def is_free(self) -> bool:
        return not self.holds and self.waits is None and not self.gone

    def idle(self) -> float:
        """For how many seconds nobody has needed it."""
        return now() - self.idle_since if self.is_free() else -math.inf
