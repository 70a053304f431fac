"""The owner of a lock: a thread, or an asyncio task in it."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

#: The number of a thread; an object that no other thread with this number has had; and the running task, or
#: None. The reference to the task is weak, so that a stored owner does not keep its task alive.
Owner = tuple[int, object, "weakref.ref[asyncio.Task[Any]] | None"]

_running = threading.local()


def current_owner() -> Owner:
    """Return the running thread, and the running task if there is one.

    A contextvar would not do: `asyncio.gather` copies the context, and both children would be one owner.
    """
    try:
        mark = _running.mark
    except AttributeError:
        # One step, because a signal handler that comes in between has to get the same object.
        mark = vars(_running).setdefault("mark", object())
    # The number is needed, too: if gevent patches `threading` later, the greenlets of a thread share a mark.
    thread = threading.get_ident()
    # asyncio.get_running_loop() raises an error if no loop runs, which costs more than this whole function.
    if asyncio._get_running_loop() is None or (task := asyncio.current_task()) is None:
        return thread, mark, None
    return thread, mark, weakref.ref(task)


def in_event_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    return asyncio._get_running_loop() is not None
