"""Gives pooled database connections back while their thread waits for a lock, whose holder may need one.

The module also records which threads wait for which locks, so that no holder waits for its own waiter.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections

from distlock.engine.sans_io import Commands, Park, Parker, TaskParker, ThreadParker
from distlock.locks.namespace import Acquirer, AcquirerWrapper, Acquisition, Namespace
from distlock.locks.self_deadlock import is_held_around
from distlock.terms import Terms

T = TypeVar("T")

#: Asks whether the session has an open cursor, as during ``QuerySet.iterator()``, or an advisory lock. Both
#: belong to the connection, so it can't be given back.
_USED = """
    SELECT EXISTS (SELECT FROM pg_cursors WHERE is_holdable)
        OR EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())
"""


class _InTask:
    """The parker of a task. When it first sleeps, it gives pooled connections back.

    They belong to the thread in which `sync_to_async` runs the queries of the task.
    """

    __slots__ = ("_given", "_parker", "owner")

    may_stall = True

    def __init__(self, parker: TaskParker) -> None:
        self._parker = parker
        self.owner = parker.owner
        self._given = False

    def wake(self) -> None:
        self._parker.wake()

    def alive(self) -> bool:
        return self._parker.alive()

    async def wait(self, timeout: float) -> None:
        if self._given or not _may_be_pooled():
            await self._parker.wait(timeout)
            return
        # Don't await `giving` first: the thread may be busy with other requests for longer than we wait.
        giving = asyncio.ensure_future(sync_to_async(give_back)())
        try:
            await self._parker.wait(timeout)
        finally:
            # Cancel `giving` if it has not begun: from here on the task may need its connections.
            self._given = not giving.cancel()
        if self._given:
            giving.result()


def _may_be_pooled() -> bool:
    """Return whether any database may have a pool, so that a call in another thread is worth its cost."""
    return not _keeps() and any(
        "pool" in one["OPTIONS"] or not one["ENGINE"].startswith("django.db.backends.")
        for one in connections.settings.values()
    )


def _keeps() -> bool:
    return bool(getattr(settings, "DISTLOCK_KEEP_CONNECTIONS", False))


def give_back() -> None:
    """Give back this thread's pooled connections that are idle and hold no state."""
    if _keeps():
        return
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and _is_pooled(connection) and _is_clean(connection):
            connection.close()


def _is_clean(connection: Any) -> bool:
    if connection.in_atomic_block or not connection.autocommit:
        return False
    driver = connection.connection
    if connection.vendor != "postgresql":
        return True
    # Ask the driver, which also knows of a BEGIN that the site sent itself. Status 0 means idle.
    if driver.info.transaction_status:
        return False
    try:
        [(used,)] = driver.execute(_USED).fetchall()
    except Exception:  # The connection is broken, and its next use raises.
        return False
    return not used


def _is_pooled(connection: Any) -> bool:
    # Django's wrappers for PostgreSQL and Oracle have a pool, and so may those of other packages.
    return getattr(connection, "pool", None) is not None


# There is no mutex. A waiter writes to `_waits` before it reads `_watched`, a watcher does the reverse, so at
# least one of the two sees the other.
#: By thread id: the names that the thread waits for, and their namespace.
_waits: dict[int, tuple[Namespace, Sequence[str]]] = {}
#: By parker: the id of the thread whose waits for locks wake the parker. None: the waits of any thread do.
_watched: dict[Parker, int | None] = {}


class RecordingAcquirer(AcquirerWrapper):
    """An acquirer of *inner*'s locks that records what the thread waits for.

    It also gives the thread's idle connections back, unless *gives_back* is False.
    """

    def __init__(self, inner: Acquirer, *, gives_back: bool = True) -> None:
        super().__init__(inner)
        self._gives_back = gives_back

    def acquire(self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms) -> Acquisition:
        if self._gives_back:
            if isinstance(parker, ThreadParker):
                parker.before_sleep = give_back
            elif isinstance(parker, TaskParker):
                parker = _InTask(parker)
        if parker.may_stall:
            # This is a task. While it waits, its thread does not.
            return (yield from self._inner.acquire(names, parker, seconds, terms))
        me = threading.get_ident()
        _waits[me] = self.namespace, names
        try:
            for watch, thread in tuple(_watched.items()):
                if thread in {None, me}:
                    watch.wake()
            return (yield from self._inner.acquire(names, parker, seconds, terms))
        finally:
            _waits.pop(me, None)


def when_idle(
    look: Callable[[], T], parker: TaskParker, waits_for_us: Callable[[], bool], thread: int | None = None
) -> Commands[T | None]:
    """Call *look* in the thread of this request's `sync_to_async`, when that thread is idle.

    If the client disconnects, or a time-out in the view expires, the thread's work goes on, and would be
    committed after the release. So a cancellation is raised only after the wait. The wait ends early if
    *waits_for_us* says that the thread's work itself waits for this lock: neither wait would end.

    Return the result of *look*, or None if it was not called. *thread*: the thread's id. None: it is unknown.
    """
    idle = asyncio.ensure_future(sync_to_async(look)())
    idle.add_done_callback(lambda _: parker.wake())
    cancelled: asyncio.CancelledError | None = None
    _watched[parker] = thread
    try:
        while not (idle.done() or waits_for_us()):
            try:
                yield Park(parker, math.inf)
            except asyncio.CancelledError as error:
                cancelled = error
    finally:
        del _watched[parker]
    found = None if idle.cancel() else idle.result()
    if cancelled is not None:
        raise cancelled
    return found


def wait_for_us(
    threads: Sequence[int], namespace: Namespace | None = None, names: Sequence[str] = ()
) -> bool:
    """Return whether one of *threads* waits for a lock of the running code or of the code that started it.

    The *names* of *namespace* also count as held: the code that releases them may run elsewhere.
    """
    for wanted, some in filter(None, map(_waits.get, threads)):
        if namespace is not None and wanted.is_same(namespace) and not set(names).isdisjoint(some):
            return True
        if is_held_around(wanted, some):
            return True
    return False
