"""A call of the backend as a generator of waits, so that threads and event loops share one implementation.

The generator yields what it waits for, and a driver carries that out: `run` in the caller's thread, or
`distlock.backends.zookeeper.tasks` for an event loop.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from kazoo.exceptions import OperationTimeoutError

from distlock import clock

T = TypeVar("T")


class Await(NamedTuple):
    """Wait for *answer*, for at most *seconds*. The driver sends back whether it has come."""

    answer: ZooKeeperReply
    seconds: float


class Block(NamedTuple):
    """Call *function*, which blocks, so only a thread can."""

    function: Callable[[], object]


Exchanges = Generator[Await | Block, bool, T]


def run(exchanges: Exchanges[T]) -> T:
    """Carry out *exchanges* in this thread, and return the result."""
    try:
        step = next(exchanges)
        while True:
            try:
                said = step.answer.wait(step.seconds) if isinstance(step, Await) else bool(step.function())
            except BaseException as error:  # the call handles it, and raises it again
                step = exchanges.throw(error)
            else:
                step = exchanges.send(said)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        # An interrupt may come between two steps.
        exchanges.close()


#: Called with an answer that no thread waits for.
Notify = Callable[["ZooKeeperReply"], None]


class ZooKeeperReply:
    """The reply to one request. A thread waits for it, or kazoo's thread calls *notify*.

    *notify* must not block.
    It replaces kazoo's result, whose condition costs more than all the rest. Thread-safe.
    """

    __slots__ = ("_arrived", "_notify", "_ready", "_value", "error")

    def __init__(self, notify: Notify | None = None) -> None:
        self._arrived = threading.Lock()
        self._arrived.acquire()
        self._ready = False
        self._value: Any = None
        #: The error of the server or the connection.
        self.error: BaseException | None = None
        self._notify = notify

    def ready(self) -> bool:
        return self._ready

    def wait(self, timeout: float) -> bool:
        """Wait *timeout* seconds for the reply. Return whether it has come."""
        if not self._ready and self._arrived.acquire(timeout=max(0.0, timeout)):
            # Wake the other waiting threads.
            self._arrived.release()
        return self._ready

    def on_ready(self, notify: Notify) -> None:
        """Have *notify* called when the reply comes. If it is coming just now, `ready` tells."""
        self._notify = notify

    def get(self) -> Any:
        """Return the reply, or raise `error`."""
        if not self._ready:
            raise OperationTimeoutError("no answer yet")
        if self.error is not None:
            raise self.error
        return self._value

    # -- called by kazoo -------------------------------------------------------------------------

    def set(self, value: Any = None) -> None:
        self._arrive(value, None)

    def set_exception(self, error: BaseException) -> None:
        self._arrive(None, error)

    def _arrive(self, value: Any, error: BaseException | None) -> None:
        # kazoo may report a broken connection twice.
        if not self._ready:
            self._value, self.error = value, error
            self._ready = True
            self._arrived.release()
            if self._notify is not None:
                self._notify(self)


#: A process that wakes this many seconds too late was stopped.
_STOPPED = 0.05


class Deadline(float):
    """When a call ends, by `distlock.clock`: *patience* seconds from now, but not after *latest*.

    A process that was stopped did not wait, so its deadline may be extended.
    """

    patience: float
    latest: float
    #: Whether no request may be sent after it.
    hard: bool

    def __new__(cls, patience: float, latest: float = math.inf, hard: bool = False) -> Deadline:
        made = super().__new__(cls, min(clock.now() + patience, latest))
        made.patience, made.latest, made.hard = patience, latest, hard
        return made

    def extended(self) -> Deadline:
        """Return itself, or a new deadline if this one passed while the process was stopped."""
        late = clock.now() > self + _STOPPED
        return Deadline(self.patience, self.latest, self.hard) if late else self
