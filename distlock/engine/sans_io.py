"""Commands, and the drivers that carry them out: `run` in a thread, `arun` in an asyncio task.

The algorithms of this package are generators that yield commands and do no I/O themselves (sans-I/O). So one
source serves threads and asyncio, and the tests play the same generators in any order. The commands are
`Call`, `Park` and `NewParker`. If a call would block the event loop, a thread of this module makes it.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache, partial
from types import MethodType
from typing import Any, Protocol, TypeVar

from distlock import clock, signal_safety
from distlock.backends.protocols import REPEAT, Awaits, Begun
from distlock.engine.process import forget_in_children
from distlock.errors import BackendUnavailable
from distlock.owner import Owner, current_owner

T = TypeVar("T")


class Parker(Protocol):
    """The place where one caller sleeps. A wake-up before the sleep is not lost; several count as one."""

    #: Whether the caller may stand still while the process goes on, as a task does whose event loop is busy.
    may_stall: bool
    #: The thread or task that sleeps there.
    owner: Owner

    def wake(self) -> None:
        """Wake the caller. Any thread may call this. Returns at once."""

    def alive(self) -> bool:
        """Return whether the caller can still wake. A task can't if its event loop is closed."""


class Call:
    """The command to call ``function(*arguments)``, which does I/O.

    The generator is resumed with the result or the exception of the function.

    Args:
        until: the moment, by `distlock.clock.now`, at which the call has to be over. The function gets it as
            its last argument. None: the function takes no deadline.
    """

    #: Whether a worker thread has made the call. The task that waits for it may not be resumed yet.
    over = False
    #: The moment at which the call is over at the latest, if an event loop makes it, so that other threads
    #: can't see its end. ``inf``: a worker thread makes the call, and sets `over`.
    over_by = math.inf

    def __init__(self, function: Callable[..., Any], *arguments: Any, until: float | None = None) -> None:
        self.function = function
        self.arguments = arguments if until is None else (*arguments, until)
        self.until = until

    def is_over(self) -> bool:
        """Return whether the lock service can't act on the call any more, as far as other threads see."""
        return self.over or clock.now() >= self.over_by


class NewParker:
    """The command to make a parker for the caller. A driver can only wait at parkers of its own kind."""

    __slots__ = ()


@dataclass(slots=True)
class Park:
    """The command to sleep at *parker* until a wake-up, for *timeout* seconds at most (``inf``: no limit).

    Args:
        wait: called by a thread with *parker* and *timeout* in order to sleep: see
            `distlock.backends.protocols.Hears`. None: the parker's own `wait`. Tasks ignore it.
    """

    parker: Parker
    timeout: float
    wait: Callable[[Any, float], None] | None = None


Commands = Generator[Call | Park | NewParker, Any, T]


class ThreadParker:
    """The place where a thread sleeps, or a greenlet if gevent has patched `threading`."""

    __slots__ = ("_wakeup", "before_sleep", "owner")

    may_stall = False

    def __init__(self) -> None:
        self.owner = current_owner()
        #: Called by the thread each time before it sleeps here.
        self.before_sleep: Callable[[], None] | None = None
        #: Locked while there is no wake-up.
        self._wakeup = threading.Lock()
        self._wakeup.acquire()

    def wake(self) -> None:
        try:
            self._wakeup.release()
        except RuntimeError:
            pass  # There is a wake-up already.

    def alive(self) -> bool:
        return True

    def prepare_sleep(self) -> None:
        """Call `before_sleep`, because the thread is about to sleep."""
        if self.before_sleep is not None:
            self.before_sleep()

    def has_wakeup(self) -> bool:
        """Return whether there is a wake-up that no sleep has used up."""
        return not self._wakeup.locked()

    def use_wakeup(self) -> bool:
        """Use up a wake-up. Return False if there is none."""
        return self._wakeup.acquire(blocking=False)

    def wait(self, timeout: float) -> None:
        """Sleep until a wake-up, for *timeout* seconds at most, and use it up."""
        self.prepare_sleep()
        self._wakeup.acquire(timeout=-1 if timeout == math.inf else max(0.0, timeout))


def run(commands: Commands[T]) -> T:
    """Carry *commands* out in this thread. Return what their generator returns."""
    calling = signal_safety.this_thread.calling
    try:
        command = next(commands)
        while True:
            try:
                if type(command) is Call:
                    if calling.locked():
                        raise signal_safety.refusal()
                    with calling:
                        answer = command.function(*command.arguments)
                elif isinstance(command, Park):
                    # run() is given ThreadParkers.
                    parker: Any = command.parker
                    wait = parker.wait if command.wait is None else partial(command.wait, parker)
                    signal_safety.park(wait, command.timeout)
                    answer = None
                else:
                    answer = ThreadParker()
            except BaseException as error:  # the algorithm cleans up, and raises it again
                command = commands.throw(error)
            else:
                command = commands.send(answer)
    except StopIteration as stop:
        value: T = stop.value
        return value
    except BaseException:
        # Close the generator now: the traceback of an interrupt between two commands would keep it alive.
        commands.close()
        raise


class TaskParker:
    """The place where an asyncio task sleeps. Any thread may wake the task."""

    __slots__ = ("_loop", "_sleep", "_woken", "owner")

    may_stall = True

    def __init__(self) -> None:
        self.owner = current_owner()
        self._loop = asyncio.get_running_loop()
        self._woken = False
        self._sleep: asyncio.Future[None] | None = None

    def wake(self) -> None:
        # While a task of its loop is running, the loop needs no system call to wake it.
        if asyncio._get_running_loop() is self._loop and asyncio.current_task() is not None:
            self._wake_in_loop()
            return
        try:
            self._loop.call_soon_threadsafe(self._wake_in_loop)
        except RuntimeError:
            pass  # The loop is closed, and its tasks with it.

    def alive(self) -> bool:
        return not self._loop.is_closed()

    async def wait(self, timeout: float) -> None:
        """Sleep until a wake-up, for *timeout* seconds at most, and use it up."""
        if not self._woken:
            self._sleep = sleep = self._loop.create_future()
            end = None if timeout == math.inf else self._loop.call_later(max(0.0, timeout), _end, sleep)
            try:
                await sleep
            finally:
                self._sleep = None
                if end is not None:
                    end.cancel()
        self._woken = False

    def _wake_in_loop(self) -> None:
        self._woken = True
        if self._sleep is not None:
            _end(self._sleep)


def _end(sleep: asyncio.Future[None]) -> None:
    if not sleep.done():
        sleep.set_result(None)


async def arun(commands: Commands[T]) -> T:
    """Carry *commands* out in this task. Return what their generator returns."""
    try:
        command = next(commands)
        while True:
            try:
                if isinstance(command, Call):
                    answer = await _acall(command)
                elif isinstance(command, Park):
                    parker: Any = command.parker  # arun() is given TaskParkers
                    answer = await parker.wait(command.timeout)
                else:
                    answer = TaskParker()
            except BaseException as error:
                command = commands.throw(error)
            else:
                command = commands.send(answer)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        commands.close()


async def _acall(call: Call) -> Any:
    """Make *call* from the event loop if its backend can, else in a worker thread. Return the result."""
    if (begun := _begin_in_loop(call)) is not None:
        call.over_by = begun.ends
        answer = await begun
        if answer is not REPEAT:
            return answer
        call.over_by = math.inf
    return await _in_thread(call)


def _begin_in_loop(call: Call) -> Begun | None:
    """Have the backend send *call* from this event loop. Return its future; None: it needs a thread."""
    method = call.function
    if not isinstance(method, MethodType) or signal_safety.is_calling():
        return None
    backend: Any = method.__self__
    if not _awaits(type(backend)):  # type: ignore[arg-type]  # a class is hashable
        return None
    begun: Begun | None = signal_safety.call(backend.begin, method, *call.arguments)
    return begun


@cache
def _awaits(kind: type[Any]) -> bool:
    return issubclass(kind, Awaits)


class _Threads:
    """The worker threads for the I/O of tasks.

    The event loop's own executor would not do: callers that wait for a lock could use all of its threads, and
    so keep the holder from releasing.
    """

    def __init__(self) -> None:
        self.after_fork()
        forget_in_children(self)

    def after_fork(self) -> None:
        self.executor = ThreadPoolExecutor(16, thread_name_prefix="distlock-io")


_threads = _Threads()


def _begin(function: Callable[[], Any], submit: Callable[[Callable[[], None]], object]) -> Future[Any]:
    """Have a thread call *function*, and return the future of its result. *submit*: gives it to an executor.

    Raises:
        BackendUnavailable: no thread could be started.
    """
    begun: Future[Any] = Future()

    def make_call() -> None:
        if begun.set_running_or_notify_cancel():
            try:
                answer = function()
            except BaseException as error:
                begun.set_exception(error)
            else:
                begun.set_result(answer)

    try:
        submit(make_call)
    except RuntimeError as error:
        # The executor has queued the call all the same, and must not make it later.
        if begun.cancel():
            raise BackendUnavailable(f"No thread could be started for it: {error}.") from error
    return begun


def _make(call: Call) -> Any:
    try:
        return signal_safety.call(call.function, *call.arguments)
    finally:
        call.over = True


def _begin_in_thread(call: Call) -> Future[Any]:
    return _begin(partial(_make, call), _threads.executor.submit)


async def _in_thread(call: Call) -> Any:
    begun = _begin_in_thread(call)
    future = asyncio.wrap_future(begun)
    try:
        if call.until is not None and call.until != math.inf:
            await asyncio.wait([future], timeout=max(0.0, call.until - clock.now()))
            # Only cancel a call that no thread has begun. One that has begun keeps its deadline itself.
            if not future.done() and begun.cancel():
                raise BackendUnavailable("All threads for calls to lock services were busy for too long.")
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        # The thread goes on. Wait for it, because what it did can be undone only after that.
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                continue
        if not future.cancelled():
            # Retrieve the error of the call, which no caller gets: else asyncio would log it.
            future.exception()
        raise


async def call_in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Return ``function(*arguments)``, which another thread calls, as in `asyncio.to_thread`.

    Raises `BackendUnavailable` if no thread can be started.
    """
    # `self_deadlock` finds the context here.
    context, loop = copy_context(), asyncio.get_running_loop()
    begun = _begin(partial(context.run, function, *arguments), partial(loop.run_in_executor, None))
    answer: T = await asyncio.wrap_future(begun)
    return answer
