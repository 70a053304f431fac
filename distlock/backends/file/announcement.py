"""What processes say of themselves, for people who look: a file for each, in the folder ``processes``.

Its first line is host, pid, and for how many seconds it is true; each other line is what is said of one key.
It is written under another name and then renamed, so that nobody reads a part of it.
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
from distlock.backends.file.record_locks import name_of
from distlock.backends.file.tree import Tree
from distlock.backends.inspectable import Row

PROCESSES = "processes"
#: Behind the name of a file that is being written.
NEW = ".new"
#: Of how many keys a process tells.
_MOST_ROWS = 10_000


class Said(NamedTuple):
    """What one process says."""

    host: str
    pid: int
    #: A line for each key.
    lines: Sequence[str]

    def rows(self, before: str) -> list[Row]:
        """What it says of the keys that begin with *before*."""
        begins = _written([before]).removesuffix('"]')
        return [Row(*json.loads(line)) for line in self.lines if line.startswith(begins)]

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
        new = f"{self._name}{NEW}"
        folder = self._tree.enter(PROCESSES, self._tree.root)
        try:
            with suppress(FileNotFoundError):
                os.unlink(new, dir_fd=folder)
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(new, flags, 0o600, dir_fd=folder), "w", encoding="ascii") as file:
                os.fchmod(file.fileno(), self._tree.file_mode())
                file.write(text)
            os.rename(new, self._name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)


def read(tree: Tree, contender: int) -> Said | None:
    """What *contender* says; None if it says nothing, or has not said it again for its whole life."""
    name = name_of(contender)
    try:
        folder = tree.open(PROCESSES, tree.root)
    except FileNotFoundError:
        return None
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        return None
    finally:
        os.close(folder)
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        status = os.fstat(descriptor)
        tree.require_file(status, f"{PROCESSES}/{name}")
        head, *lines = file.read().split("\n")
    host, pid, life = json.loads(head)
    return Said(host, pid, lines) if time.time() < status.st_mtime + life else None


def _written(parts: Sequence[object]) -> str:
    return json.dumps(parts, separators=(",", ":"))
