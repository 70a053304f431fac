"""Holders of what callers of this process wait for, so that a time-out names them without a round trip.

The keeper looks, every few seconds, at a few names that have been waited for longer than a moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice

from distlock.backends.inspectable import Inspectable, Row, Sight
from distlock.engine.call import Call
from distlock.engine.steps import Steps
from distlock.errors import LockError

logger = logging.getLogger("distlock")

#: How many names are looked at in one round.
MOST = 20


class Holders:
    def __init__(self, backend: Inspectable | None, now: Callable[[], float]) -> None:
        self._backend = backend
        self._now = now
        self._seen: dict[str, Sight] = {}

    def seen(self, key: str) -> Sight | None:
        """*key*, as it was in the last round; None: nobody has looked. Asks nobody."""
        return self._seen.get(key)

    def forget(self) -> None:
        self._seen = {}

    def look(self, rows: Iterable[Row], until: float) -> Steps[None]:
        """Look at those of *rows* that another process holds: the longest wait first, until *until*."""
        elsewhere = (row for row in rows if row.waiting and not row.held_since)
        seen = {}
        for row in islice(sorted(elsewhere, key=lambda one: one.waiting_since), MOST):
            if self._backend is None or self._now() >= until:
                break
            try:
                seen[row.key] = yield Call(self._backend.inspect, row.key, until=until)
            except Exception as error:
                # Nobody's lock depends on it, so it may not delay a renewal, whatever it is.
                if not isinstance(error, LockError):
                    logger.warning("The holder of a lock could not be looked up: %r", error, exc_info=True)
                break
        self._seen = seen
