"""How an algorithm waits without knowing what runs it: it yields steps, and a driver takes them.

One implementation serves threads and asyncio, and the tests drive the same generators on a scheduler of
their own, in every order that they like.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from distlock import clock, reentrance
from distlock.engine.fork import forget_in_children
from distlock.errors import BackendUnavailable

T = TypeVar("T")


class Gate(Protocol):
    """What one waiter sleeps at. A `wake` before the sleep is not lost; several count as one."""

    #: Whether the waiter that sleeps there may be kept from waking, while others of the process go on.
    may_stall: bool

    def wake(self) -> None: ...

    def alive(self) -> bool:
        """Whether anybody can still come through."""


class Call:
    """Do I/O: the answer of ``function(*arguments)``, or its exception, comes back to the algorithm.

    *until*: the moment by which it has to be over, on `distlock.clock.now`; the last argument of *function*.
    """

    __slots__ = ("arguments", "function", "over", "until")

    def __init__(self, function: Callable[..., Any], *arguments: Any, until: float | None = None) -> None:
        #: It was carried out in another thread than that of the algorithm, which may not know it yet.
        self.over = False
        self.function = function
        self.arguments = arguments if until is None else (*arguments, until)
        self.until = math.inf if until is None else until


class NewGate(Call):
    """Have a gate made, of the kind that the driver can wait at."""

    def __init__(self) -> None:
        super().__init__(ThreadGate)


class Park:
    """Sleep at the gate until it is woken, for *timeout* seconds at most (``math.inf``: no limit)."""

    __slots__ = ("gate", "timeout")

    def __init__(self, gate: Gate, timeout: float) -> None:
        self.gate = gate
        self.timeout = timeout


Steps = Generator[Call | Park, Any, T]


class ThreadGate:
    """A thread, or a greenlet where the threading module is patched."""

    __slots__ = ("_closed", "before_sleep")

    may_stall = False

    def __init__(self) -> None:
        #: Called by the thread each time that it goes to sleep there.
        self.before_sleep: Callable[[], None] | None = None
        self._closed = threading.Lock()
        self._closed.acquire()

    def wake(self) -> None:
        try:
            self._closed.release()
        except RuntimeError:
            pass  # It is open already.

    def alive(self) -> bool:
        return True

    def wait(self, timeout: float) -> None:
        if self.before_sleep is not None:
            self.before_sleep()
        self._closed.acquire(timeout=-1 if timeout == math.inf else max(0.0, timeout))


def run(steps: Steps[T]) -> T:
    """Take the steps in this thread."""
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, NewGate):
                    answer = ThreadGate()
                elif isinstance(step, Call):
                    answer = reentrance.call(step.function, *step.arguments)
                else:
                    reentrance.park(step.gate.wait, step.timeout)  # type: ignore[attr-defined]  # run() is given ThreadGates
                    answer = None
            except BaseException as error:  # the algorithm cleans up, then it is raised again
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        # An interrupt between two steps has a traceback that would keep them from being collected.
        steps.close()


class TaskGate:
    """An asyncio task. Woken from any thread."""

    __slots__ = ("_loop", "_open")

    #: Its event loop may be stopped.
    may_stall = True

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open = asyncio.Event()

    def wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._open.set)
        except RuntimeError:
            pass  # The loop is closed, and its tasks with it.

    def alive(self) -> bool:
        return not self._loop.is_closed()

    async def wait(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(None if timeout == math.inf else max(0.0, timeout)):
                await self._open.wait()
        except TimeoutError:
            return
        self._open.clear()


async def arun(steps: Steps[T]) -> T:
    """Take the steps in this task; I/O runs in the loop's threads."""
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, NewGate):
                    answer = TaskGate()
                elif isinstance(step, Call):
                    answer = await _in_thread(step)
                else:
                    answer = await step.gate.wait(step.timeout)  # type: ignore[attr-defined]  # arun() is given TaskGates
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        steps.close()


class _Threads:
    """Threads of our own for the I/O of tasks.

    In the loop's own executor callers that wait for a lock could keep its holder from releasing it.
    """

    def __init__(self) -> None:
        self.after_fork()
        forget_in_children(self)

    def after_fork(self) -> None:
        self.executor = ThreadPoolExecutor(16, thread_name_prefix="distlock-io")


_threads = _Threads()


def _begin(step: Call) -> Future[Any]:
    """Have a thread of ours carry *step* out."""
    begun: Future[Any] = Future()

    def carry_out() -> None:
        if begun.set_running_or_notify_cancel():
            try:
                answer = reentrance.call(step.function, *step.arguments)
            except BaseException as error:
                step.over = True
                begun.set_exception(error)
            else:
                step.over = True
                begun.set_result(answer)

    try:
        _threads.executor.submit(carry_out)
    except RuntimeError as error:
        # It stays in the executor's queue, and must not be carried out when nobody knows of it any more.
        if begun.cancel():
            raise BackendUnavailable(f"No thread could be started for it: {error}.") from error
    return begun


async def _in_thread(call: Call) -> Any:
    begun = _begin(call)
    future = asyncio.wrap_future(begun)
    try:
        if call.until != math.inf:
            await asyncio.wait([future], timeout=max(0.0, call.until - clock.now()))
            # Once begun it keeps the time itself.
            if not future.done() and begun.cancel():
                raise BackendUnavailable("All threads for calls to lock services were busy for too long.")
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        # The thread goes on. What it did must be known to be over before the algorithm undoes it.
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                continue
        raise
