"""A latch as it is kept where the lock service itself can't count: in memory, in a file, in a node."""

from __future__ import annotations

import json
from collections.abc import Iterable

from distlock.backends.latches import REMEMBERED, LatchState


class LatchRecord:
    """Changed by one caller at a time. The keeper of the record brings the clock."""

    def __init__(self, maker: str, total: int, left: int, ttl: float, parts: Iterable[str] = ()) -> None:
        self.maker = maker
        self.total = total
        self.left = left
        #: Seconds that it lives without a count.
        self.ttl = ttl
        #: The counted parts, the oldest first.
        self._parts = dict.fromkeys(parts)

    def count(self, by: int, part: str) -> bool:
        """Count *part*. False: nothing is changed, for it was counted before, or the latch is open."""
        if not self.left or part in self._parts:
            return False
        self.left = max(0, self.left - by)
        self._parts[part] = None
        if len(self._parts) > REMEMBERED:
            del self._parts[next(iter(self._parts))]
        return True

    def state(self, ttl: float, life: str = "") -> LatchState:
        """*ttl*: seconds that it has left. *life*: as `LatchState.id`."""
        return LatchState(self.maker, self.total, self.left, ttl, life)

    def written(self) -> bytes:
        told = (self.maker, self.total, self.left, self.ttl, list(self._parts))
        return json.dumps(told, separators=(",", ":")).encode()

    @classmethod
    def read(cls, text: bytes) -> LatchRecord:
        """Return the record that `written` wrote. Raises ValueError for anything else."""
        try:
            maker, total, left, ttl, parts = json.loads(text)
            return cls(str(maker), int(total), int(left), float(ttl), map(str, parts))
        except (TypeError, OverflowError) as error:
            raise ValueError(str(error)) from error
