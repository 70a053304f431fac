"""``"ON_BACKEND_DOWN": "run"``: while the lock service is away, fenced views queue at the fence's row."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from distlock.errors import BackendUnavailable
from distlock.grant import Grant
from distlock.lock import Lock
from distlock.locks import Locks

logger = logging.getLogger("distlock")


class LockOrRow:
    """A lock of *client*; where its service does not answer, one of *standby*, which is rows.

    *timeout*, *ttl*: seconds, for *client*. *left*: seconds that may be waited in all.
    """

    def __init__(
        self,
        client: Locks,
        standby: Locks,
        names: Sequence[str],
        timeout: float | None,
        ttl: float | None,
        left: Callable[[], float],
    ) -> None:
        self._lock = client.lock(*names, timeout=timeout, ttl=ttl)
        self._lock.of_guard = True
        self._standby = standby
        self._left = left

    def __enter__(self) -> Grant:
        try:
            return self._lock.__enter__()
        except BackendUnavailable as error:
            self._lock = self._row(error)
            return self._lock.__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        self._lock.__exit__(*exc_info)

    async def __aenter__(self) -> Grant:
        try:
            return await self._lock.__aenter__()
        except BackendUnavailable as error:
            self._lock = self._row(error)
            return await self._lock.__aenter__()

    async def __aexit__(self, *exc_info: Any) -> None:
        await self._lock.__aexit__(*exc_info)

    def _row(self, error: BackendUnavailable) -> Lock:
        names = self._lock.names
        logger.error(
            "Without its lock service, the lock %s is the fence's row this time: %s",
            ", ".join(map(repr, names)),
            error,
        )
        lock = self._standby.lock(*names, timeout=max(0.0, self._left()))
        lock.of_guard = True
        return lock
