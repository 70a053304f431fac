"""The owner of what is taken now: a thread, or an asyncio task in it."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

#: A weak reference: what remembers an owner must not keep a forgotten task from being collected.
Owner = tuple[int, "weakref.ref[asyncio.Task[Any]] | None"]


def current_owner() -> Owner:
    """The running thread, and the running task if there is one.

    Not a contextvar: `asyncio.gather` copies the context, and both children would be the same owner.
    """
    thread = threading.get_ident()
    # Its public form raises an error where there is none, which costs more than all the rest.
    if asyncio._get_running_loop() is None:
        return thread, None
    task = asyncio.current_task()
    return thread, None if task is None else weakref.ref(task)


def in_event_loop() -> bool:
    """Whether an event loop runs in this thread."""
    return asyncio._get_running_loop() is not None
