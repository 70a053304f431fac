"""A caller that waits for a lock keeps no pooled connection: the holder may need it, to finish."""

from __future__ import annotations

import asyncio
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections

from distlock.engine.commands import Parker
from distlock.engine.drivers import TaskParker, ThreadParker

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

    __slots__ = ("_gate", "_given")

    may_stall = True

    def __init__(self, parker: TaskParker) -> None:
        self._gate = parker
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
    """Whether it is worth the way to another thread."""
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
