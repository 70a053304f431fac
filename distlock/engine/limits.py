"""Differing limits of one semaphore, as while a site is deployed: they halt nobody, and are logged once."""

from __future__ import annotations

import logging

from distlock.backends.base import Ask, Held

logger = logging.getLogger("distlock")

#: So many are remembered as said. Names may be client data.
_MOST = 1000


class Limits:
    """Of one engine."""

    def __init__(self) -> None:
        self._said: set[tuple[str, int, int]] = set()

    def compare(self, name: str, ask: Ask, held: Held) -> None:
        """What *ask* for permits of *name* was granted may tell of another limit."""
        other = held.other_limit
        known = ask.key, min(ask.limit, other), max(ask.limit, other)
        if not other or known in self._said:
            return
        if len(self._said) >= _MOST:
            self._said.clear()
        self._said.add(known)
        logger.warning(
            "The semaphore %r is asked for with limit=%d here, and with limit=%d elsewhere. Each caller "
            "enters by its own. That is as it should be during a deployment; else write one everywhere.",
            name,
            ask.limit,
            other,
        )
