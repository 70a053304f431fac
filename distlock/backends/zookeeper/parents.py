"""The nodes of the locks themselves: made when a lock is used, gone when it is not any more.

They are containers, which the server removes, but only once a minute. Removing each after use and making it
again would double the writes of a lock. So those that were used just now are kept, and the oldest go.
"""

from __future__ import annotations

from collections import OrderedDict

from distlock import clock

#: Seconds that the node of an unused lock is kept, and how many of them.
_IDLE = 5.0
_MOST = 1000


class Parents:
    """Paths that most likely exist and are empty, the one used last at the end. Threads share it."""

    def __init__(self) -> None:
        self._used: OrderedDict[str, float] = OrderedDict()

    def take(self, path: str) -> bool:
        """It is going to be used. Returns whether it most likely exists."""
        return self._used.pop(path, None) is not None

    def put(self, path: str) -> None:
        """It was used."""
        self._used[path] = clock.now()

    def spare(self) -> list[str]:
        """Those that are to be deleted now. One in use in the same moment is missed there, and made again."""
        spare = []
        oldest = clock.now() - _IDLE
        for path, used in list(self._used.items()):
            if used > oldest and len(self._used) <= _MOST:
                break
            if self._used.pop(path, None) is not None:
                spare.append(path)
        return spare

    @property
    def many(self) -> bool:
        return len(self._used) > _MOST

    def clear(self) -> list[str]:
        """All of them."""
        paths = list(self._used)
        self._used.clear()
        return paths
