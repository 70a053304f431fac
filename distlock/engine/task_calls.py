"""How a task calls its lock service: from its event loop, or in a thread of ours where that could wait."""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from types import MethodType
from typing import Any

from distlock import clock, reentrance
from distlock.backends.optional import REPEAT, Awaits, Begun
from distlock.engine.call import Call
from distlock.engine.fork import forget_in_children
from distlock.errors import BackendUnavailable


async def carried_out(call: Call) -> Any:
    if (begun := _begun_here(call)) is not None:
        call.ends = begun.ends
        answer = await begun
        if answer is not REPEAT:
            return answer
        call.ends = math.inf
    return await _in_thread(call)


def _begun_here(call: Call) -> Begun | None:
    """The answer to *call*, if its backend has sent it from this loop."""
    method = call.function
    if not isinstance(method, MethodType) or reentrance.is_calling():
        return None
    backend: Any = method.__self__
    if not _awaits(type(backend)):  # type: ignore[arg-type]  # a class is hashable
        return None
    begun: Begun | None = reentrance.call(backend.begin, method, *call.arguments)
    return begun


@cache
def _awaits(kind: type[Any]) -> bool:
    return issubclass(kind, Awaits)


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
        if not future.cancelled():
            # Nobody hears of its error any more, and asyncio would log that.
            future.exception()
        raise
