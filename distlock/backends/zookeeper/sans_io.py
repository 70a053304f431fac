"""A call of the backend as a generator of waits, so that threads and event loops share one implementation.

The generator yields what to wait for, and a driver waits: `run` in the caller's thread, or `TaskCall` for an
event loop.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from kazoo.exceptions import OperationTimeoutError, SessionExpiredError

from distlock import clock, signal_safety
from distlock.backends.protocols import REPEAT, Begun
from distlock.backends.zookeeper.failures import UNREADABLE
from distlock.errors import BackendUnavailable

T = TypeVar("T")


class Await(NamedTuple):
    """Wait for *answer*, for at most *seconds*. The driver sends back whether the answer has come."""

    answer: ZooKeeperReply
    seconds: float


class Block(NamedTuple):
    """Call *function*, which blocks. `TaskCall` does not call it, but ends with `REPEAT`."""

    function: Callable[[], object]


Exchanges = Generator[Await | Block, bool, T]


def run(exchanges: Exchanges[T]) -> T:
    """Carry out *exchanges* in this thread, and return the result."""
    try:
        step = next(exchanges)
        while True:
            try:
                came = step.answer.wait(step.seconds) if isinstance(step, Await) else bool(step.function())
            except BaseException as error:  # the generator cleans up, and raises it again
                step = exchanges.throw(error)
            else:
                step = exchanges.send(came)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        # An interrupt may have come between two steps: the generator cleans up.
        exchanges.close()


#: The type of a callback that gets a reply for which no thread waits.
Notify = Callable[["ZooKeeperReply"], None]


class ZooKeeperReply:
    """The reply to one request. A thread waits for it, or kazoo's thread calls *notify* with it. Thread-safe.

    *notify* must not block. This class replaces kazoo's result, whose condition variable is slow.
    """

    __slots__ = ("_arrived", "_notify", "_ready", "_value", "error", "unreadable")

    def __init__(self, notify: Notify | None = None) -> None:
        self._arrived = threading.Lock()
        self._arrived.acquire()
        self._ready = False
        self._value: Any = None
        #: The error of the server or the connection.
        self.error: BaseException | None = None
        #: Whether kazoo could not parse the reply. The connection ends the session then.
        self.unreadable = False
        self._notify = notify

    def ready(self) -> bool:
        return self._ready

    def wait(self, timeout: float) -> bool:
        """Wait at most *timeout* seconds for the reply. Return whether it has come."""
        if not self._ready and self._arrived.acquire(timeout=max(0.0, timeout)):
            # Wake the other waiting threads.
            self._arrived.release()
        return self._ready

    def on_ready(self, notify: Notify) -> None:
        """Have *notify* called when the reply comes.

        Check `ready` afterwards: *notify* is not called for a reply that came before.
        """
        self._notify = notify

    def get(self) -> Any:
        """Return the reply, or raise `error`. Raises `OperationTimeoutError` if there is no reply yet."""
        if not self._ready:
            raise OperationTimeoutError("no answer yet")
        if self.error is not None:
            raise self.error
        return self._value

    # -- called by kazoo -------------------------------------------------------------------------

    def set(self, value: Any = None) -> None:
        self._arrive(value, None)

    def set_exception(self, error: BaseException) -> None:
        if isinstance(error, UNREADABLE):
            self.unreadable = True
            error = SessionExpiredError("an answer that can't be read")
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

    The time while the process was stopped does not count, so a deadline can be extended.
    """

    patience: float
    latest: float
    #: Whether nothing may be sent after this time.
    hard: bool

    def __new__(cls, patience: float, latest: float = math.inf, hard: bool = False) -> Deadline:
        made = super().__new__(cls, min(clock.now() + patience, latest))
        made.patience, made.latest, made.hard = patience, latest, hard
        return made

    def extended(self) -> Deadline:
        """Return this deadline, or a new one if it passed while the process was stopped."""
        late = clock.now() > self + _STOPPED
        return Deadline(self.patience, self.latest, self.hard) if late else self


class TaskCall(Begun):
    """A call that an event loop has begun. kazoo's thread continues it as replies come, without the loop.

    The call ends with the answer, at *ends*, or with the connection, which ends when the server has been
    silent for the io_timeout. After its end the call sends nothing, so the engine does not wait for its event
    loop (`distlock.engine.sans_io.Call.is_over`). *over* is called at the end.
    """

    __slots__ = ("_awaited", "_exchanges", "_mutex", "_over", "_timer", "_when_over")

    def __init__(
        self, ends: float, exchanges: Exchanges[Any], over: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__(asyncio.get_running_loop(), ends)
        self._exchanges = exchanges
        self._when_over = over
        self._mutex = threading.Lock()
        self._awaited: ZooKeeperReply | None = None
        self._over = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> Begun:
        """Send the first requests of the call, and return the call."""
        with self._mutex:
            # `drop` in another thread may have ended the call already.
            if not self._over:
                self._go_on(None)
        if not self._over:
            left = self.ends - clock.now()
            self._timer = self.get_loop().call_later(left, signal_safety.call, self._time_is_over)
        return self

    def drop(self) -> None:
        """End the call: it sends nothing any more, and its outcome is unknown. Any thread may call this."""
        with self._mutex:
            if not self._over:
                self._exchanges.close()
                self._end(self.set_exception, BackendUnavailable("It was given up before it was answered."))

    def _time_is_over(self) -> None:
        with self._mutex:
            if not self._over:
                self._go_on(self._awaited is not None and self._awaited.ready())

    def _reply_came(self, answer: ZooKeeperReply) -> None:
        """Continue with *answer*. kazoo's thread calls this."""
        with self._mutex:
            if answer is self._awaited and not self._over:
                self._go_on(clock.now() < self.ends)

    def _go_on(self, came: bool | None) -> None:
        """Continue until the next wait. *came*: whether the awaited answer came in time; None: begin."""
        try:
            while True:
                step = next(self._exchanges) if came is None else self._exchanges.send(came)
                if isinstance(step, Block):
                    self._exchanges.close()
                    self._end(self.set_result, REPEAT)
                    return
                self._awaited = step.answer
                step.answer.on_ready(self._reply_came)
                came = step.answer.ready()
                if not came and step.seconds > 0:
                    return
        except StopIteration as stop:
            self._end(self.set_result, stop.value)
        except Exception as error:
            self._end(self.set_exception, error)
        except BaseException:
            self._exchanges.close()
            self._end(self.set_result, REPEAT)
            raise

    def _end(self, end: Callable[[Any], None], answer: Any) -> None:
        self._over, self._awaited = True, None
        self._when_over()
        if self._is_in_its_loop():
            self._set_outcome(end, answer)
            return
        # A closed loop can't be notified.
        with suppress(RuntimeError):
            self.get_loop().call_soon_threadsafe(self._set_outcome, end, answer)

    def _is_in_its_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self.get_loop()
        except RuntimeError:
            return False

    def _set_outcome(self, end: Callable[[Any], None], answer: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.done():
            end(answer)
