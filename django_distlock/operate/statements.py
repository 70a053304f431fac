"""Which request sent a statement of SQL, whatever thread it sent it from: for the debug toolbar.

A thread of `sync_to_async` or `asyncio.to_thread` runs in the context of its request, and so is known. One
that the view starts by itself is not: what it sends is counted with the requests that run meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

from django.db import connections
from django.db.backends.signals import connection_created

from django_distlock.operate.record import RequestRecord
from django_distlock.private import wrappers_of

#: The statements of the running request.
recording: ContextVar[RequestRecord | None] = ContextVar("distlock_record", default=None)
_running: WeakSet[RequestRecord] = WeakSet()
#: Has the cursor whose statement is under way.
_thread = threading.local()


def begin(record: RequestRecord) -> None:
    """The running request is recorded in *record*."""
    recording.set(record)
    _running.add(record)
    for connection in connections.all(initialized_only=True):
        _watch(connection)


def end(record: RequestRecord) -> None:
    """It is recorded no more."""
    recording.set(None)
    _running.discard(record)


def _execute(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
    if getattr(_thread, "cursor", None) is context["cursor"]:
        # In a batch the wrappers of two connections are around it.
        return execute(sql, params, many, context)
    _thread.cursor = context["cursor"]
    try:
        if (record := recording.get()) is not None:
            return record.execute(execute, sql, params, many, context)
        for other in list(_running):
            other.strangers += 1
        return execute(sql, params, many, context)
    finally:
        _thread.cursor = None


def _watch(connection: Any, **_: Any) -> None:
    wrappers = wrappers_of(connection)
    if _execute not in wrappers:
        # In front, and for good: who has one for a while takes away the last one.
        wrappers.insert(0, _execute)


connection_created.connect(_watch, dispatch_uid="distlock.toolbar")
