"""A line, seen by one that does not stand in it: who is first, who waits, and breaking what was seen."""

from __future__ import annotations

import socket
from contextlib import suppress

from distlock.backends.file import announcement, hints
from distlock.backends.file.announcement import PROCESSES
from distlock.backends.file.entry import Entry
from distlock.backends.file.line import Line
from distlock.backends.file.record_locks import RecordLocks, contender_of, name_of
from distlock.backends.file.tree import Tree
from distlock.backends.file.turn import front
from distlock.backends.file.wanted import want
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
        have = list(front(living))
        queue = [self._seen(entry.contender, key) for entry in living if entry not in have]
        if not have:
            return Sight(queue=queue[:MOST_SHOWN], waiting=len(queue))
        holder = self._seen(have[0].contender, key)
        return Sight(
            holder,
            have[0].number,
            queue=queue[:MOST_SHOWN],
            waiting=len(queue),
            mode=have[0].wants.mode,
            others=len(have) - 1,
            beside=[self._seen(entry.contender, key) for entry in have[1 : 1 + MOST_SHOWN]],
            out=sum(entry.wants.permits for entry in have),
            limit=have[0].wants.limit,
        )

    def locked(self, key: str, patience: float) -> bool:
        """Whether anybody living stands in the line for *key*."""
        spot = self._line.spot(key)
        # Only a look that finds nobody has to be the only writer's: it may have been taken just then.
        return self._anybody(self._line.entries(spot)) or self._anybody(
            self._line.exact_entries(spot, patience)
        )

    def break_hold(self, key: str, number: int, patience: float) -> bool:
        """Take the hold of *key* that begins with *number* out of the line, and tell its process."""
        broken = self._line.break_hold(self._line.spot(key), number, patience)
        if broken is not None:
            hints.send(self._tree, broken.contender, hints.BROKEN)
        return broken is not None

    def request_release(self, key: str, patience: float) -> bool:
        """Tell the processes that have *key* that it is wanted back. False: none has it."""
        line = self._line.exact_entries(self._line.spot(key), patience)
        have = list(front([entry for entry in line if self._locks.alive(entry.contender)]))
        for entry in have:
            want(self._tree, entry)
            # To one that listens it says: look after your holds.
            hints.send(self._tree, entry.contender, hints.BROKEN)
        return bool(have)

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
        who, silent = name_of(contender), said.silent
        return [Seen(who, said.host, said.pid, row, silent) for row in said.rows(before)]

    def _anybody(self, line: list[Entry]) -> bool:
        return any(self._locks.alive(entry.contender) for entry in line)

    def _seen(self, contender: int, key: str) -> Seen:
        said = announcement.read(self._tree, contender)
        if said is not None:
            return Seen(name_of(contender), said.host, said.pid, said.row(key), said.silent)
        # The kernel knows this much of a process of this host that has said nothing yet.
        pid = self._locks.pid(contender)
        return Seen(name_of(contender), socket.gethostname() if pid else "", pid or 0)
