"""Files that crashed processes left. Later processes delete them, a few with each call."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from distlock.backends.file.directory import Distrusted
from distlock.backends.file.inspection import PROCESSES, WANTED
from distlock.backends.file.queues import SUFFIX, FileQueues
from distlock.backends.file.record_locks import RecordLocks, contender_of
from distlock.backends.file.tree import NEW, WAKE, Tree

#: Seconds that one call may spend on deleting leftovers.
_BUDGET = 0.002


class Sweeper:
    """Deletes the entries, seeds, FIFOs and published status of dead contenders."""

    def __init__(self, tree: Tree, locks: RecordLocks, line: FileQueues) -> None:
        self._tree = tree
        self._locks = locks
        self._queues = line
        self._steps: Iterator[None] | None = None
        self._turn = threading.Lock()

    def begin(self) -> None:
        """Start a round, which the next calls carry out."""
        if self._steps is None:
            self._steps = self._round()

    def go_on(self) -> None:
        """Continue the round for a moment."""
        if self._steps is None or not self._turn.acquire(blocking=False):
            return
        try:
            end = time.monotonic() + _BUDGET
            for _ in self._steps:
                if time.monotonic() > end:
                    return
            self._steps = None
        except (OSError, Distrusted):
            self._steps = None  # A later round will do; the caller's lock can't wait.
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
                        # distlock makes no directory of such a name.
                        with suppress(FileNotFoundError, IsADirectoryError):
                            os.unlink(f"{folder}/{name}", dir_fd=self._tree.root)
                yield
        for entries in self._queues.lines_of_shards():
            for entry in entries:
                if self._dead(entry.contender, known):
                    with suppress(IsADirectoryError):
                        self._queues.leave(entry)
                yield
            yield

    def _dead(self, contender: int, known: dict[int, bool]) -> bool:
        """Return whether *contender* is dead, by one look a round: it may have thousands of entries."""
        if contender not in known:
            known[contender] = not self._locks.alive(contender)
        return known[contender]
