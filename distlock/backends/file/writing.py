"""Being the only writer of a shard, among the threads of this process and among processes.

A signal handler may raise anywhere, also where no `__exit__` can help. So each writer is known by the frame
whose ``with`` it is: once that has ended the writer is inside no more, and the next writer puts it right.
"""

from __future__ import annotations

import errno
import fcntl
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

HELD_BY_OTHERS = {errno.EACCES, errno.EAGAIN}


class Writers:
    """Which threads of this process write, by shard; one at a time for each."""

    def __init__(self, descriptor: int, stalled: Callable[[float, bool], Exception]) -> None:
        self.descriptor = descriptor
        #: The error after a wait in vain: for how long, seconds, and whether for this very process.
        self.stalled = stalled
        # Record locks do not exclude threads of one process from one another.
        self.inside: dict[int, Writing] = {}
        self._healing = threading.Lock()

    def heal(self) -> None:
        """Let go what interrupted writers had."""
        if self.inside:
            for writer in self.inside.copy().values():
                if writer.gone():
                    self.abandon(writer)

    def abandon(self, writer: Writing) -> None:
        """Again: nothing happens."""
        with self._healing:
            if self.inside.get(writer.shard) is writer:
                # Nobody else of this process can have it yet, so this may be interrupted and done twice.
                try:
                    fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, writer.shard)
                finally:
                    del self.inside[writer.shard]


class Writing:
    """One ``with`` block: the only writer of *shard* inside, or an error after *patience* seconds."""

    __slots__ = ("_frame", "_patience", "_writers", "shard")

    def __init__(self, writers: Writers, shard: int, patience: float) -> None:
        self.shard = shard
        self._writers = writers
        self._patience = patience
        self._frame: FrameType | None = None

    def __enter__(self) -> None:
        self._frame = sys._getframe(1)
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc_info: object) -> None:
        self._writers.abandon(self)
        self._frame = None

    def gone(self) -> bool:
        """Whether its block was left without `__exit__`."""
        frame = self._frame
        if frame is None:
            return False
        try:
            # Refused where the frame runs, in whichever thread or greenlet.
            frame.clear()
        except RuntimeError:
            return False
        return True

    def _wait(self) -> None:
        deadline = time.monotonic() + self._patience
        pause = 0.00005  # Others write for some 20 µs, so the first look again comes soon.
        while True:
            # One step, which no handler interrupts: the writer that is in there is known.
            first = self._writers.inside.setdefault(self.shard, self)
            if first is self:
                if self._lock():
                    return
            elif first.gone():
                self._writers.abandon(first)
                continue
            if time.monotonic() >= deadline:
                raise self._writers.stalled(self._patience, first is not self)
            time.sleep(pause)
            pause = min(pause * 2, 0.005)

    def _lock(self) -> bool:
        try:
            fcntl.lockf(self._writers.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self.shard)
        except OSError as error:
            if error.errno not in HELD_BY_OTHERS:
                raise
            return False
        return True
