"""Holds that are wanted back: an empty file for each, in the folder ``wanted``.

Its name is that of contender and proof. The process of the hold looks there now and then, and deletes the
files of holds that are over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from distlock.backends.base import LockRequest
from distlock.backends.file.entry import Entry, proof_of
from distlock.backends.file.record_locks import name_of
from distlock.backends.file.tree import Tree

WANTED = "wanted"
#: Seconds that the file of a hold stays that is not known here: it may be taken just now.
_UNKNOWN = 60.0


def want(tree: Tree, entry: Entry) -> None:
    """Have it known that the hold *entry* is wanted back."""
    folder = tree.enter(WANTED, tree.root)
    try:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(FileExistsError):
            name = f"{name_of(entry.contender)}~{entry.proof}"
            os.close(os.open(name, flags, 0o600, dir_fd=folder))
    finally:
        os.close(folder)


class Wanted:
    """Those of one contender. Threads share it. *entries*: all that it has in lines, by token."""

    def __init__(self, tree: Tree, contender: int, entries: Mapping[str, Entry]) -> None:
        self._tree = tree
        self._before = f"{name_of(contender)}~"
        self._entries = entries
        self._told: set[str] = set()

    def of(self, requests: Sequence[LockRequest]) -> Iterator[LockRequest]:
        """Those of *requests* whose holds are wanted."""
        if found := self._found():
            for request in requests:
                if (proof := proof_of(request.token)) in found:
                    self._told.add(proof)
                    yield request

    def has_news(self) -> bool:
        """Whether one is wanted that `of` has not told yet."""
        return bool(self._found() - self._told)

    def end(self) -> None:
        """Its contender holds nothing any more."""
        with suppress(OSError):
            for proof in self._proofs():
                self._forget(proof, time.time())

    def _found(self) -> set[str]:
        wanted = self._proofs()
        ours = {entry.proof for entry in list(self._entries.values())}
        for proof in wanted - ours:
            self._forget(proof, time.time() - _UNKNOWN)
        self._told &= wanted
        return wanted & ours

    def _proofs(self) -> set[str]:
        names: list[str] = []
        with suppress(FileNotFoundError):
            names = self._tree.names(WANTED, self._tree.root)
        return {name.removeprefix(self._before) for name in names if name.startswith(self._before)}

    def _forget(self, proof: str, until: float) -> None:
        """Delete its file, unless it was made after *until*, seconds since 1970."""
        path = f"{WANTED}/{self._before}{proof}"
        with suppress(OSError):
            if os.lstat(path, dir_fd=self._tree.root).st_mtime <= until:
                os.unlink(path, dir_fd=self._tree.root)
