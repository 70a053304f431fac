"""Whether a lock excludes: memory that all processes share, which is only touched under the lock."""

from __future__ import annotations

import mmap
import os
import time
from array import array
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: The numbers in the memory: the thread that is inside, how often it was entered, the last fence, the last
#: thread and process, and when that left, in nanoseconds.
INSIDE, ENTERED, FENCE, THREAD, PROCESS, LEFT = range(6)
SIZE = 6 * 8


class Oracle:
    """The memory of one contest. *path*: a file that all processes can open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), SIZE)
        self.cells = memoryview(self._memory).cast("q")

    @classmethod
    def make(cls, directory: Path) -> Oracle:
        path = directory / "oracle"
        path.write_bytes(bytes(SIZE))
        return cls(path)

    def clear(self) -> None:
        for cell in range(len(self.cells)):
            self.cells[cell] = 0

    @property
    def entered(self) -> int:
        """How often somebody was inside: less than they say if two were at once."""
        return self.cells[ENTERED]

    @property
    def fence(self) -> int:
        """The last number that somebody had inside; 0: nobody had one."""
        return self.cells[FENCE]


@dataclass(slots=True)
class Witness:
    """What one thread saw inside the lock. *thread*: its number among all of the contest, from 1."""

    cells: memoryview[int]
    thread: int
    entered: int = 0
    #: How often somebody else was inside, too, or the fence did not grow.
    violations: int = 0
    #: How often the last one inside was another thread; another process.
    changes: int = 0
    process_changes: int = 0
    #: Nanoseconds from where another thread left to where this one, which waited already, was inside.
    hand_overs: array[float] = field(default_factory=lambda: array("d"))

    def pass_through(self, lock: AbstractContextManager[Any], body: float) -> float:
        """Take *lock* and do *body*, which takes so many seconds. Returns the seconds of the wait."""
        cells, me, process = self.cells, self.thread, os.getpid()
        asked = time.monotonic_ns()
        with lock as got:
            now = time.monotonic_ns()
            if cells[INSIDE]:
                self.violations += 1
            cells[INSIDE] = me
            entered = cells[ENTERED]
            if (fence := getattr(got, "fence", None)) is not None:
                if fence.number <= cells[FENCE]:
                    self.violations += 1
                cells[FENCE] = fence.number
            if entered and cells[THREAD] != me:
                self.changes += 1
                self.process_changes += cells[PROCESS] != process
                if asked < cells[LEFT] < now:
                    self.hand_overs.append(now - cells[LEFT])
            cells[THREAD], cells[PROCESS] = me, process
            if body:
                time.sleep(body)
            if cells[INSIDE] != me:
                self.violations += 1
            cells[ENTERED] = entered + 1
            cells[INSIDE], cells[LEFT] = 0, time.monotonic_ns()
        self.entered += 1
        return (now - asked) / 1e9
