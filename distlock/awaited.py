"""Whether a task waits for the running thread: for plain code that it has called in a thread, and awaits.

`asyncio.to_thread`, asgiref's `sync_to_async` and their like run it in a copy of the task's context, which
the coroutine that awaits it has in a variable. So that is looked for, and nothing of theirs is known here.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar
from threading import Lock
from typing import Any

#: For so long the task may run until it awaits anything, seconds. A loop that stands still tells nothing.
_PATIENCE = 1.0
#: It comes on top of a wait, of which it is a small part.
_SHARE = 0.1

_here: ContextVar[object] = ContextVar("distlock_here")


def awaits_this(task: asyncio.Task[Any], seconds: float) -> bool:
    """Whether *task*, of another thread's loop, awaits what this one does.

    False where it can't be told. *seconds*: for so long it would be waited otherwise.
    """
    suspended = Lock()
    suspended.acquire()
    try:
        # It has started this thread, and may run on for a moment.
        task.get_loop().call_soon_threadsafe(suspended.release)
    except RuntimeError:
        return False
    if not suspended.acquire(timeout=min(_PATIENCE, _SHARE * seconds)):
        return False
    mark = object()
    before = _here.set(mark)
    try:
        return any(
            # Not `isinstance`, which asks lazy objects, as a request's user, what they are: that is a query.
            type(value) is Context and value.get(_here) is mark
            for frame in _frames(task)
            for value in list(frame.f_locals.values())
        )
    finally:
        _here.reset(before)


def _frames(task: asyncio.Task[Any]) -> list[Any]:
    """Those of the coroutines that *task* is in, the outermost first."""
    frames: list[Any] = []
    waits: Any = task.get_coro()
    while waits is not None:
        frames.append(getattr(waits, "cr_frame", None) or getattr(waits, "gi_frame", None))
        waits = getattr(waits, "cr_await", None) or getattr(waits, "gi_yieldfrom", None)
    return [frame for frame in frames if frame is not None]
