"""The numbers: tickets, which grow in each shard, and the floor that numbers have to be above.

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
#: Behind the counters: for each shard what numbers have to be above, whatever the tickets are.
_FLOORS = SHARDS * _BYTES
_COUNTER_LIMIT = 1 << 62
#: Numbers can be lifted so far; above it there is room for as many again.
HIGHEST_FLOOR = 1 << 61


def microseconds() -> int:
    return time.time_ns() // 1000


class Tickets:
    """Of one state file, open as *descriptor*."""

    def __init__(self, directory: Directory, descriptor: int, now: Callable[[], int] = microseconds) -> None:
        self._directory = directory
        self._descriptor = descriptor
        self._now = now

    def counter(self, shard: int) -> int:
        """Above every ticket that was taken."""
        return self._read(shard * _BYTES)

    def take(self, shard: int, counter: int, span: int, least: int = 0) -> int:
        """Reserve *span* growing numbers; *counter* is read just before.

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
        """What numbers have to be above. Tickets that were taken before it was raised may not be."""
        return self._read(_FLOORS + shard * _BYTES)

    def lift(self, shard: int, span: int, above: int) -> int:
        """Reserve *span* numbers above *above*; those of who stands in line already come to be above them."""
        number = self.take(shard, self.counter(shard), span, above + 1)
        self._write(_FLOORS + shard * _BYTES, number + span - 1)
        return number

    def _read(self, offset: int) -> int:
        return int.from_bytes(os.pread(self._descriptor, _BYTES, offset), "little")

    def _write(self, offset: int, number: int) -> None:
        os.pwrite(self._descriptor, number.to_bytes(_BYTES, "little"), offset)
