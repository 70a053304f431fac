"""Who is running: a thread, or an asyncio task in it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

Owner = tuple[int, "asyncio.Task[Any] | None"]


def current_owner() -> Owner:
    """The running thread, and the running task if there is one.

    Not a contextvar: `asyncio.gather` copies the context, and both children would be the same owner.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), task
