"""Those whose turn it is and that do not take the lock: perhaps they stand still."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from distlock.backends.file.entry import Entry


class Suspects:
    """As each ask of one contender sees them."""

    def __init__(self) -> None:
        #: By token: the tickets, and since when.
        self._since: dict[str, dict[int, float]] = {}

    def overdue(self, token: str, idle: Iterable[Entry], window: float) -> tuple[list[int], float]:
        """The tickets of those of *idle* that could have taken what they want for *window* seconds.

        If there are none: when to look again, seconds from now; ``inf``: there is nothing against anybody.
        """
        known = self._since.get(token, {})
        now = time.monotonic()
        since = {entry.ticket: known.get(entry.ticket, now) for entry in idle}
        if not since:
            self.forget(token)
            return [], math.inf
        self._since[token] = since
        return (
            [ticket for ticket, moment in since.items() if now >= moment + window],
            min(since.values()) + window - now,
        )

    def forget(self, token: str) -> None:
        self._since.pop(token, None)
