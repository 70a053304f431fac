"""The owner of what is taken now: a thread, or an asyncio task in it."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

#: The number of the thread, what tells it from others that have had this number, and its task. A weak
#: reference: what remembers an owner must not keep a forgotten task from being collected.
Owner = tuple[int, object, "weakref.ref[asyncio.Task[Any]] | None"]

_running = threading.local()


def current_owner() -> Owner:
    """Return the running thread, and the running task if there is one.

    Not a contextvar: `asyncio.gather` copies the context, and both children would be the same owner.
    """
    try:
        mark = _running.mark
    except AttributeError:
        # One step: a signal handler that comes meanwhile asks for the same owner.
        mark = vars(_running).setdefault("mark", object())
    # The number all the same: where gevent came after us, the greenlets of a thread have one mark.
    thread = threading.get_ident()
    # Its public form raises an error where there is none, which costs more than all the rest.
    if asyncio._get_running_loop() is None or (task := asyncio.current_task()) is None:
        return thread, mark, None
    return thread, mark, weakref.ref(task)


def in_event_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    return asyncio._get_running_loop() is not None
