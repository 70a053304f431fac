"""A caller that waits for a lock keeps no pooled connection: the holder may need it, to finish.

The module also knows which threads wait for which locks, so that no holder waits for its own waiter.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections

from distlock.engine.commands import Commands, Parker
from distlock.engine.drivers import TaskParker, ThreadParker
from distlock.grants.grant import Grant
from distlock.locks.namespace import Acquirer, Namespace
from distlock.locks.self_deadlock import is_held_around
from distlock.terms import Terms

#: A queryset that is being iterated reads on from its cursor; a lock of the session would go to another.
_USED = """
    SELECT EXISTS (SELECT FROM pg_cursors WHERE is_holdable)
        OR EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())
"""


def giving_back(parker: Parker) -> Parker:
    """*parker*, whose sleeper gives the pooled connections back first."""
    if isinstance(parker, ThreadParker):
        parker.before_sleep = give_back
        return parker
    return _InTask(parker) if isinstance(parker, TaskParker) else parker


class _InTask:
    """The connections are those of the thread where `sync_to_async` runs the database work of the task."""

    __slots__ = ("_gate", "_given", "owner")

    may_stall = True

    def __init__(self, parker: TaskParker) -> None:
        self._gate = parker
        self.owner = parker.owner
        self._given = False

    def wake(self) -> None:
        self._gate.wake()

    def alive(self) -> bool:
        return self._gate.alive()

    async def wait(self, timeout: float) -> None:
        if self._given or not _may_be_pooled():
            await self._gate.wait(timeout)
            return
        # Beside the wait: that thread may be busy with somebody else's work for longer than we wait.
        giving = asyncio.ensure_future(sync_to_async(give_back)())
        try:
            await self._gate.wait(timeout)
        finally:
            # A transaction that was not begun by now never is: the connection may be needed from here on.
            self._given = not giving.cancel()
        if self._given:
            giving.result()


def _may_be_pooled() -> bool:
    """Return whether it is worth the way to another thread."""
    return not _keeps() and any(
        "pool" in one["OPTIONS"] or not one["ENGINE"].startswith("django.db.backends.")
        for one in connections.settings.values()
    )


def _keeps() -> bool:
    return bool(getattr(settings, "DISTLOCK_KEEP_CONNECTIONS", False))


def give_back() -> None:
    """Give this thread's pooled connections back, those that are idle and clean."""
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
    # The driver knows of a BEGIN that the site has sent by itself. Idle is 0.
    if driver.info.transaction_status:
        return False
    try:
        [(used,)] = driver.execute(_USED).fetchall()
    except Exception:  # broken: its next use says so
        return False
    return not used


def _is_pooled(connection: Any) -> bool:
    # Django's own wrappers for PostgreSQL and Oracle, and what others have made after them.
    return getattr(connection, "pool", None) is not None


# No mutex: everybody writes first and reads then, so that one of two at least sees the other.
_waits: dict[int, tuple[Namespace, Sequence[str]]] = {}
_watched: dict[Parker, int | None] = {}


class Waiting:
    """*inner*; but a thread that waits is known by what it waits for, and keeps no idle connection."""

    def __init__(self, inner: Acquirer, *, gives_back: bool = True) -> None:
        self.namespace = inner.namespace
        self._inner = inner
        self._gives_back = gives_back

    def acquire(
        self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[Grant | None]:
        if self._gives_back:
            parker = giving_back(parker)
        if parker.may_stall:
            # Tasks share a thread, which does not wait with them.
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


@contextmanager
def watched(parker: Parker, thread: int | None = None) -> Iterator[None]:
    """*parker* is woken whenever *thread*, or any at all, begins to wait while the block runs."""
    _watched[parker] = thread
    try:
        yield
    finally:
        del _watched[parker]


def wait_for_us(
    threads: Sequence[int], namespace: Namespace | None = None, names: Sequence[str] = ()
) -> bool:
    """Whether one of *threads* waits for a lock that is held by the running code, or by what it runs in.

    *names* of *namespace* are held for certain: the code that ends them may run elsewhere.
    """
    for wanted, some in filter(None, map(_waits.get, threads)):
        if namespace is not None and wanted.is_same(namespace) and not set(names).isdisjoint(some):
            return True
        if is_held_around(wanted, some):
            return True
    return False
