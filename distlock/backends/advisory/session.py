"""One session: what it holds, or what it waits for. Both end with it."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from distlock.backends.advisory.dialect import Dialect, Rows, Say, ServerLock, Wire
from distlock.backends.advisory.failures import Gone, Refused, Vanished
from distlock.backends.base import Ask, Held
from distlock.clock import now

#: Seconds until a waiter looks again. It is told: this is the net.
POLL = 1.0


@dataclass(slots=True)
class Taken:
    """A lock that the session has, or may have."""

    ask: Ask
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
        self.waits: tuple[Ask, ServerLock] | None = None
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

    def has_room(self, ask: Ask) -> bool:
        """Whether *ask* may try here. The server lets one session have its own lock twice."""
        return self.waits is None and ask.key not in self.holds

    def take(self, ask: Ask, lock: ServerLock, deadline: float) -> Held | None:
        """Taken it if it is free."""
        ttl = max(ask.ttl, self.ttl) if self.holds else ask.ttl
        hold = self.holds[ask.key] = Taken(ask, lock)
        with self._given_back(hold, Refused, deadline):
            number = self._dialect.take(self.saying(deadline), lock, ttl, ask.span)
        if number is None:
            del self.holds[ask.key]
            return None
        self.ttl, hold.granted, hold.number = ttl, True, number
        return Held(number, ask.ttl)

    def begin_to_wait(self) -> None:
        assert self.waits is not None
        self.told = False
        self.wire.send(self._dialect.wait(self.waits[1], self._window))

    def again(self, ask: Ask, deadline: float) -> Held | None:
        """What has become of *ask*, which waits here no more. None: nothing, and it stands here no more."""
        hold = self.holds.get(ask.key) or self.granted(deadline)
        if not hold.granted:
            self.give_back(hold, deadline)
            return None
        if hold.number:
            self.ping(deadline)
        else:
            self.ttl = ask.ttl
            with self._given_back(hold, Refused, deadline):
                hold.number = self._dialect.accept(self.saying(deadline), hold.lock, ask.ttl, hold.ask.span)
        return Held(hold.number, ask.ttl)

    def granted(self, deadline: float) -> Taken:
        """The wait is over: what it gave."""
        try:
            self._dialect.check_had(self.wire.answer(deadline))
        except Refused:
            # Somebody else has ended the wait, and the lock may have come first: it ends with the session.
            self.waits, self.gone = None, True
            raise
        return self._keep()

    def called_off(self, deadline: float) -> bool:
        """The server was told to end the wait. Whether it had given the lock before."""
        assert self.waits is not None
        try:
            self._dialect.check_had(self.wire.answer(deadline))
        except Refused:
            # What came in the same moment as the word to stop is ours, and is not said.
            if not self._dialect.stands(self.saying(deadline), self.waits[1], self.number):
                self.waits = None
                return False
        self._keep()
        return True

    def _keep(self) -> Taken:
        assert self.waits is not None
        ask, lock = self.waits
        self.holds[ask.key] = Taken(ask, lock, granted=True)
        self.waits = None
        return self.holds[ask.key]

    def give_back(self, hold: Taken, deadline: float) -> bool:
        """Whether it was ours."""
        hold.granted = False
        ours = self._dialect.give_back(self.saying(deadline), hold.lock, len(self.holds) == 1)
        del self.holds[hold.ask.key]
        return ours

    def lift(self, hold: Taken, number: int, deadline: float) -> Held:
        """Give *hold* a number above *number*, and all later ones of its name larger ones."""
        if hold.number > number:
            self.ping(deadline)
        else:
            with self._given_back(hold, Vanished, deadline):
                hold.number = self._dialect.lift(
                    self.saying(deadline), hold.lock, hold.number, number, hold.ask.span
                )
        return Held(hold.number, hold.ask.ttl)

    @contextmanager
    def _given_back(self, hold: Taken, after: type[Refused], deadline: float) -> Iterator[None]:
        """A lock without a number is none."""
        try:
            yield
        except after:
            self.give_back(hold, deadline)
            raise

    # -- from anywhere -------------------------------------------------------------------------------

    def has(self, ask: Ask) -> bool:
        """Whether *ask* stands here, held or waiting."""
        hold, waits = self.holds.get(ask.key), self.waits
        return (hold is not None and hold.ask.token == ask.token) or (
            waits is not None and waits[0].token == ask.token
        )

    def is_free(self) -> bool:
        return not self.holds and self.waits is None and not self.gone

    def idle(self) -> float:
        """For how many seconds nobody has needed it."""
        return now() - self.idle_since if self.is_free() else -math.inf
