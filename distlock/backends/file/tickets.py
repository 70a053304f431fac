"""Tickets, which grow in each shard, and the floor that fences have to be above.

They stand in the state file. What writes them is the only writer of its shard.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from distlock.backends.file.directory import Directory
from distlock.backends.file.record_locks import SHARDS
from distlock.errors import BackendUnavailable

_BYTES = 8
#: Follow the counters: for each shard what fences have to be above, whatever the tickets are.
_FLOORS = SHARDS * _BYTES
_COUNTER_LIMIT = 1 << 62
#: Fences can be raised up to this number; as many again are free above it.
HIGHEST_FLOOR = 1 << 61


def microseconds() -> int:
    return time.time_ns() // 1000


class Tickets:
    """The counters in one state file, open as *descriptor*."""

    def __init__(self, directory: Directory, descriptor: int, now: Callable[[], int] = microseconds) -> None:
        self._directory = directory
        self._descriptor = descriptor
        self._now = now

    def counter(self, shard: int) -> int:
        """Return a number above every ticket that was given out."""
        return self._read(shard * _BYTES)

    def take(self, shard: int, counter: int, span: int, least: int = 0) -> int:
        """Reserve *span* growing numbers. *counter* was read just before.

        The counter outlives the entries, so that numbers grow when the clock is set back; the clock
        outlives the counter, so that they grow when the directory is wiped.
        """
        if counter > _COUNTER_LIMIT:
            raise BackendUnavailable(
                f"{self._directory.state} is corrupt: its counter {shard} reads {counter}. "
                f"Stop every process that uses {self._directory.path}, then delete {self._directory.root}."
            )
        ticket = max(counter, self._now(), least)
        self._write(shard * _BYTES, ticket + span)
        return ticket

    def floor(self, shard: int) -> int:
        """Return what fences have to be above. Older tickets may be below it."""
        return self._read(_FLOORS + shard * _BYTES)

    def lift(self, shard: int, span: int, above: int) -> int:
        """Reserve *span* fences above *above*. Raise the floor, so that all contenders get larger ones."""
        number = self.take(shard, self.counter(shard), span, above + 1)
        self._write(_FLOORS + shard * _BYTES, number + span - 1)
        return number

    def _read(self, offset: int) -> int:
        return int.from_bytes(os.pread(self._descriptor, _BYTES, offset), "little")

    def _write(self, offset: int, number: int) -> None:
        os.pwrite(self._descriptor, number.to_bytes(_BYTES, "little"), offset)


#: In the place of our ticket: our entry is gone, too.
_NOBODY = 0


class EmptyShards:
    """Shards that one contender knows to be empty, so that it need not read their folders.

    A contender takes a ticket before it joins a queue, so nobody has joined while the counter stands still.
    """

    def __init__(self) -> None:
        #: By shard: the ticket of our only entry, and the counter then.
        self._last: dict[int, tuple[int, int]] = {}

    def came(self, shard: int, ticket: int, counter: int) -> None:
        """Note that our entry joined an empty folder, which left *counter*. The caller is the only writer."""
        self._last[shard] = ticket, counter

    def left(self, shard: int, ticket: int, counter: int) -> bool:
        """Note that our entry is gone. Return whether nobody has joined since it came."""
        if self._last.get(shard) != (ticket, counter):
            return False
        # If another thread has taken a ticket meanwhile, the counter differs, and this entry never matches.
        self._last[shard] = _NOBODY, counter
        return True

    def empty(self, shard: int, counter: int) -> bool:
        """Return whether the folder is certainly empty. The caller is the only writer."""
        return self._last.get(shard) == (_NOBODY, counter)
