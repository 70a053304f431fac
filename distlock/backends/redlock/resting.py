"""When a process that has had its turn asks again: a moment later, as those that wait poll meanwhile.

Nobody stands in line. Without this a process whose callers never run dry would ask again right after each
release, before any other comes to.
"""

from __future__ import annotations

import random
import time

from distlock import clock

#: Between two asks of a process that waits, seconds: spread, so that no two keep hindering each other.
_POLL = (0.01, 0.04)
#: A turn is a hold of so many seconds: the engine passes it on among its own callers for as long.
_TURN = 0.05
#: Expired entries are pruned above this count.
_MANY = 1000


def poll() -> float:
    """In how many seconds to ask again."""
    return random.uniform(*_POLL)  # noqa: S311 - spreads clients, hides nothing


class Resting:
    """For one process. Threads add and pop; each is one step."""

    def __init__(self) -> None:
        #: By key: since when it is held, and until when it is left to others.
        self._since: dict[str, float] = {}
        self._until: dict[str, float] = {}

    def granted(self, key: str) -> None:
        self._since[key] = clock.now()

    def released(self, key: str) -> None:
        since, now = self._since.pop(key, None), clock.now()
        if since is None or now < since + _TURN:
            return
        if len(self._until) >= _MANY:
            self._until = {one: until for one, until in list(self._until.items()) if now < until}
        self._until[key] = now + poll()

    def wait(self, key: str, deadline: float) -> None:
        """Return when others have had the time to ask for *key*, or *deadline* is over."""
        until = self._until.pop(key, 0.0)
        if (left := min(until, deadline) - clock.now()) > 0:
            time.sleep(left)
