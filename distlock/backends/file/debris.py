"""What crashed processes left behind, swept by the processes that come after, a little with each call."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from distlock.backends.file.announcement import PROCESSES
from distlock.backends.file.line import Line
from distlock.backends.file.record_locks import RecordLocks, contender_of
from distlock.backends.file.seed import SUFFIX
from distlock.backends.file.tree import WAKE, Tree
from distlock.backends.file.trust import Distrusted
from distlock.backends.file.wanted import WANTED
from distlock.backends.file.whole import NEW

#: Seconds that one call may spend on it.
_BUDGET = 0.002


class Sweeper:
    """Deletes entries, seeds, FIFOs and announcements of dead contenders. The dead never come back."""

    def __init__(self, tree: Tree, locks: RecordLocks, line: Line) -> None:
        self._tree = tree
        self._locks = locks
        self._line = line
        self._steps: Iterator[None] | None = None
        self._turn = threading.Lock()

    def begin(self) -> None:
        """There may be debris: go round once, with the calls to come."""
        if self._steps is None:
            self._steps = self._round()

    def go_on(self) -> None:
        """Continue a round that was begun, for a moment."""
        if self._steps is None or not self._turn.acquire(blocking=False):
            return
        try:
            end = time.monotonic() + _BUDGET
            for _ in self._steps:
                if time.monotonic() > end:
                    return
            self._steps = None
        except (OSError, Distrusted):
            self._steps = None  # Sweeping can wait for a better day; the caller's lock can't.
        finally:
            self._turn.release()

    def _round(self) -> Iterator[None]:
        known: dict[int, bool] = {}
        for folder, suffix in ((WAKE, ""), (".", SUFFIX), (PROCESSES, ""), (PROCESSES, NEW), (WANTED, "")):
            names: list[str] = []
            with suppress(FileNotFoundError):
                names = self._tree.names(folder, self._tree.root)
            for name in names:
                with suppress(ValueError):
                    whose = name.removesuffix(suffix).partition("~")[0]
                    if name.endswith(suffix) and self._dead(contender_of(whose), known):
                        # A directory of such a name is not ours.
                        with suppress(FileNotFoundError, IsADirectoryError):
                            os.unlink(f"{folder}/{name}", dir_fd=self._tree.root)
                yield
        for entries in self._line.lines_of_shards():
            for entry in entries:
                if self._dead(entry.contender, known):
                    with suppress(IsADirectoryError):
                        self._line.leave(entry)
                yield
            yield

    def _dead(self, contender: int, known: dict[int, bool]) -> bool:
        """One look for each contender and round: a crash may have left many thousands of entries."""
        if contender not in known:
            known[contender] = not self._locks.alive(contender)
        return known[contender]
