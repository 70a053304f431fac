"""What processes say of themselves, for people who look: a file for each, in the folder ``processes``.

Its first line is host, pid, and for how many seconds it is true; each other line is what is said of one key.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from distlock import clock
from distlock.backends.file import whole
from distlock.backends.file.record_locks import name_of
from distlock.backends.file.tree import Tree
from distlock.backends.file.whole import NEW
from distlock.backends.inspectable import Row

PROCESSES = "processes"
#: Of how many keys a process tells.
_MOST_ROWS = 10_000


class Said(NamedTuple):
    """What one process says."""

    host: str
    pid: int
    #: A line for each key.
    lines: Sequence[str]
    #: See `distlock.backends.inspectable.Seen`.
    silent: float = 0.0

    def rows(self, before: str) -> list[Row]:
        """What it says of the keys that begin with *before*."""
        begins = _written([before]).removesuffix('"]')
        return [Row.of_parts(json.loads(line)) for line in self.lines if line.startswith(begins)]

    def row(self, key: str) -> Row | None:
        """What it says of *key*."""
        return next((row for row in self.rows(key) if row.key == key), None)


class Announcement:
    """Of one contender. Threads share it."""

    def __init__(self, tree: Tree, contender: int) -> None:
        self._tree = tree
        self._name = name_of(contender)
        self._mutex = threading.Lock()
        self._rows: dict[str, Row] = {}
        self._head: tuple[object, ...] = ()
        self._ends = 0.0

    def say(self, about: tuple[str, int], rows: Sequence[Row], gone: Sequence[str], life: float) -> bool:
        """See `distlock.backends.inspectable.Inspectable.announce`. *about*: host and pid."""
        with self._mutex:
            going_on = clock.now() < self._ends
            if not going_on:
                self._rows.clear()
            self._rows |= {row.key: row for row in rows}
            for key in gone:
                self._rows.pop(key, None)
            head = (*about, life)
            # Until it is written nothing of it is certain.
            self._ends = 0.0
            if rows or gone or head != self._head or not self._touch():
                self._write(head)
            self._head, self._ends = head, clock.now() + life
            return going_on

    def end(self) -> None:
        """Say nothing any more."""
        for suffix in ("", NEW):
            with suppress(OSError):
                os.unlink(f"{PROCESSES}/{self._name}{suffix}", dir_fd=self._tree.root)

    def _touch(self) -> bool:
        """It is true for its whole life again. False if it is not there."""
        try:
            os.utime(f"{PROCESSES}/{self._name}", dir_fd=self._tree.root, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _write(self, head: tuple[object, ...]) -> None:
        rows = list(self._rows.values())[:_MOST_ROWS]
        text = "\n".join(map(_written, [head, *(row.parts() for row in rows)]))
        whole.write(self._tree, PROCESSES, self._name, text.encode("ascii"))


def read(tree: Tree, contender: int) -> Said | None:
    """Return what *contender* says, and for how long it has said nothing more. None: it says nothing.

    The caller sees to it that it lives: a process that stands still keeps its locks until it ends.
    """
    found = whole.read(tree, PROCESSES, name_of(contender))
    if found is None:
        return None
    text, status = found
    head, *lines = text.decode("ascii", "replace").split("\n")
    host, pid, life = json.loads(head)
    since = time.time() - status.st_mtime
    return Said(host, pid, lines, since if since >= life else 0.0)


def _written(parts: Sequence[object]) -> str:
    return json.dumps(parts, separators=(",", ":"))
