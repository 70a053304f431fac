"""How an algorithm waits without knowing what runs it: it yields steps, and a driver takes them.

One implementation serves threads and asyncio, and the tests drive the same generators on a scheduler of
their own, in every order that they like.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Protocol, TypeVar

from distlock import reentrance
from distlock.engine.call import Call
from distlock.engine.task_calls import carried_out

T = TypeVar("T")


class Gate(Protocol):
    """What one waiter sleeps at. A `wake` before the sleep is not lost; several count as one."""

    #: Whether the waiter that sleeps there may be kept from waking, while others of the process go on.
    may_stall: bool

    def wake(self) -> None: ...

    def alive(self) -> bool:
        """Whether anybody can still come through."""


class NewGate(Call):
    """Have a gate made, of the kind that the driver can wait at."""

    def __init__(self) -> None:
        super().__init__(ThreadGate)


class Park:
    """Sleep at the gate until it is woken, for *timeout* seconds at most (``math.inf``: no limit).

    *wait*: how a thread sleeps there, where it may do better: see `distlock.backends.optional.Hears`.
    """

    __slots__ = ("gate", "timeout", "wait")

    def __init__(self, gate: Gate, timeout: float, wait: Callable[[Any, float], None] | None = None) -> None:
        self.gate = gate
        self.timeout = timeout
        self.wait = wait


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

    def begin(self) -> None:
        if self.before_sleep is not None:
            self.before_sleep()

    def is_open(self) -> bool:
        return not self._closed.locked()

    def pass_through(self) -> bool:
        return self._closed.acquire(blocking=False)

    def wait(self, timeout: float) -> None:
        self.begin()
        self._closed.acquire(timeout=-1 if timeout == math.inf else max(0.0, timeout))


def run(steps: Steps[T]) -> T:
    """Take the steps in this thread."""
    try:
        step = next(steps)
        while True:
            try:
                if type(step) is Call:
                    with reentrance.entry():
                        answer = step.function(*step.arguments)
                elif isinstance(step, Park):
                    # run() is given ThreadGates.
                    wait = step.gate.wait if step.wait is None else partial(step.wait, step.gate)  # type: ignore[attr-defined]
                    reentrance.park(wait, step.timeout)
                    answer = None
                else:
                    answer = ThreadGate()
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

    __slots__ = ("_loop", "_open", "_sleeps")

    #: Its event loop may be stopped.
    may_stall = True

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open = False
        self._sleeps: asyncio.Future[None] | None = None

    def wake(self) -> None:
        # A step of a task is nothing that the loop waits in: it need not be woken, which is a system call.
        if asyncio._get_running_loop() is self._loop and asyncio.current_task() is not None:
            self._let_through()
            return
        try:
            self._loop.call_soon_threadsafe(self._let_through)
        except RuntimeError:
            pass  # The loop is closed, and its tasks with it.

    def alive(self) -> bool:
        return not self._loop.is_closed()

    async def wait(self, timeout: float) -> None:
        if not self._open:
            self._sleeps = sleeps = self._loop.create_future()
            end = None if timeout == math.inf else self._loop.call_later(max(0.0, timeout), _end, sleeps)
            try:
                await sleeps
            finally:
                self._sleeps = None
                if end is not None:
                    end.cancel()
        self._open = False

    def _let_through(self) -> None:
        self._open = True
        if self._sleeps is not None:
            _end(self._sleeps)


def _end(sleeps: asyncio.Future[None]) -> None:
    if not sleeps.done():
        sleeps.set_result(None)


async def arun(steps: Steps[T]) -> T:
    """Take the steps in this task. What its loop can't ask without waiting, a thread of ours asks."""
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, NewGate):
                    answer = TaskGate()
                elif isinstance(step, Call):
                    answer = await carried_out(step)
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
