"""Whether a task waits for the running thread: for plain code that it has called in a thread, and awaits.

`asyncio.to_thread`, asgiref's `sync_to_async` and their like run it in a copy of the task's context, which
the very coroutine that awaits it has in a variable. So that is looked for, and nothing of theirs is known
here. A coroutine further out may have a context of its own, in which another thread runs that nobody awaits.
"""

from __future__ import annotations

import asyncio
import gc
from contextvars import Context, ContextVar
from threading import Lock
from types import CellType, CoroutineType
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
        # Not `isinstance`, which asks lazy objects, as a request's user, what they are: that is a query.
        return any(type(one) is Context and one.get(_here) is mark for one in _variables(_innermost(task)))
    finally:
        _here.reset(before)


def _innermost(task: asyncio.Task[Any]) -> object:
    """The coroutine of *task* that awaits what others do."""
    found: Any = task.get_coro()
    while isinstance(inner := getattr(found, "cr_await", None), CoroutineType):
        found = inner
    return found


def _variables(coroutine: object) -> list[object]:
    """Not by `f_locals`, which keeps what it gives for as long as the coroutine runs."""
    found = gc.get_referents(coroutine)
    # Those that its inner functions share.
    return found + gc.get_referents(*(one for one in found if type(one) is CellType))
