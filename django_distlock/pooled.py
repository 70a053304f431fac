"""Who waits for a lock keeps no pooled connection: the holder may need it, to finish."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import connections

from distlock.steps import ThreadGate

#: Who iterates over a queryset reads on from its cursor, and a lock of the session would be somebody else's.
_USED = """
    SELECT EXISTS (SELECT FROM pg_cursors WHERE is_holdable)
        OR EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())
"""


class GivingBack:
    """*gate*, at which a thread sleeps that has given its pooled connections back."""

    __slots__ = ("_gate",)

    def __init__(self, gate: ThreadGate) -> None:
        self._gate = gate

    def wake(self) -> None:
        self._gate.wake()

    def alive(self) -> bool:
        return self._gate.alive()

    def wait(self, timeout: float) -> None:
        give_back()
        self._gate.wait(timeout)


def give_back() -> None:
    """Give this thread's pooled connections back, those that are idle and clean."""
    if getattr(settings, "DISTLOCK_KEEP_CONNECTIONS", False):
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
    except Exception:  # broken: whoever uses it next is told
        return False
    return not used


def _is_pooled(connection: Any) -> bool:
    # Django's own wrappers for PostgreSQL and Oracle, and what others have made after them.
    return getattr(connection, "pool", None) is not None
