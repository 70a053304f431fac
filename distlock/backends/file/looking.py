"""A line, seen by one that does not stand in it: who is first, who waits, and breaking what was seen."""

from __future__ import annotations

import math
import socket
from contextlib import suppress

from distlock.backends.file import announcement, hints
from distlock.backends.file.announcement import PROCESSES
from distlock.backends.file.line import Line
from distlock.backends.file.record_locks import RecordLocks, contender_of, name_of
from distlock.backends.file.tree import Tree
from distlock.backends.inspectable import MOST_SHOWN, Seen, Sight


class Looking:
    """Of one presence. Threads share it."""

    def __init__(self, tree: Tree, locks: RecordLocks, line: Line) -> None:
        self._tree = tree
        self._locks = locks
        self._line = line

    def sight(self, key: str, patience: float) -> Sight:
        """The living in the line for *key*."""
        line = self._line.exact_entries(self._line.spot(key), patience)
        living = [entry for entry in line if self._locks.alive(entry.contender)]
        if not living:
            return Sight()
        holder, *queue = (self._seen(entry.contender, key) for entry in living[: MOST_SHOWN + 1])
        return Sight(holder, living[0].number, math.inf, queue, len(living) - 1)

    def break_first(self, key: str, number: int, patience: float) -> bool:
        """Take the hold of *key* that begins with *number* out of the line, and tell its process."""
        broken = self._line.break_first(self._line.spot(key), number, patience)
        if broken is not None:
            hints.send(self._tree, broken.contender, hints.BROKEN)
        return broken is not None

    def speaking(self) -> list[int]:
        """The contenders that say something of themselves."""
        found = []
        with suppress(FileNotFoundError):
            for name in self._tree.names(PROCESSES, self._tree.root):
                # One that is being written has another name.
                with suppress(ValueError):
                    found.append(contender_of(name))
        return found

    def said_by(self, contender: int, before: str) -> list[Seen]:
        """What *contender* says of the keys that begin with *before*."""
        said = announcement.read(self._tree, contender) if self._locks.alive(contender) else None
        if said is None:
            return []
        return [Seen(name_of(contender), said.host, said.pid, row) for row in said.rows(before)]

    def _seen(self, contender: int, key: str) -> Seen:
        said = announcement.read(self._tree, contender)
        if said is not None:
            return Seen(name_of(contender), said.host, said.pid, said.row(key))
        # The kernel knows this much of a process of this host that has said nothing yet.
        pid = self._locks.pid(contender)
        return Seen(name_of(contender), socket.gethostname() if pid else "", pid or 0)
