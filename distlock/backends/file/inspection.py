"""What operators see and do: holders, waiters, breaks, requested releases, and published status."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from distlock import clock
from distlock.backends.base import LockRequest
from distlock.backends.file import notifications
from distlock.backends.file.entries import QueueEntry, front, proof_of, spot_of
from distlock.backends.file.queues import FileQueues, create
from distlock.backends.file.record_locks import RecordLocks, contender_of, name_of
from distlock.backends.file.trusted_directories import NEW, Tree, read_file, write_file
from distlock.backends.inspectable import MOST_SHOWN, KeyState, SeenProcess, StatusRow


class Inspector:
    """The operators' view of the queues. Thread-safe."""

    def __init__(self, tree: Tree, locks: RecordLocks, queues: FileQueues) -> None:
        self._tree = tree
        self._locks = locks
        self._queues = queues

    def key_state(self, key: str, patience: float) -> KeyState:
        """Return the state of *key*: its living contenders, with what their processes publish."""
        living = self._living(self._queues.exact_entries(spot_of(key), patience))
        have = list(front(living))
        queue = [self._seen_process(entry.contender, key) for entry in living if entry not in have]
        if not have:
            return KeyState(queue=queue[:MOST_SHOWN], waiting=len(queue))
        holder = self._seen_process(have[0].contender, key)
        return KeyState(
            holder,
            have[0].number,
            queue=queue[:MOST_SHOWN],
            waiting=len(queue),
            mode=have[0].wants.mode,
            others=len(have) - 1,
            beside=[self._seen_process(entry.contender, key) for entry in have[1 : 1 + MOST_SHOWN]],
            out=sum(entry.wants.permits for entry in have),
            limit=have[0].wants.limit,
        )

    def locked(self, key: str, patience: float) -> bool:
        """Return whether a living contender for *key* exists."""
        spot = spot_of(key)
        # The first look may miss a file that is being renamed.
        return bool(
            self._living(self._queues.entries(spot))
            or self._living(self._queues.exact_entries(spot, patience))
        )

    def break_hold(self, key: str, number: int, patience: float) -> bool:
        """Delete the hold of *key* whose first fence is *number*, and notify its process.

        Return False if there is no such hold.
        """
        broken = self._queues.break_hold(spot_of(key), number, patience)
        if broken is not None:
            notifications.send(self._tree, broken.contender, notifications.CHECK_HOLDS)
        return broken is not None

    def request_release(self, key: str, patience: float) -> bool:
        """Request the release of *key* from all holders. Return False if there are none."""
        have = list(front(self._living(self._queues.exact_entries(spot_of(key), patience))))
        for entry in have:
            with self._tree.opened(WANTED, make=True) as folder, suppress(FileExistsError):
                create(f"{name_of(entry.contender)}~{entry.proof}", folder)
            # `CHECK_HOLDS` makes a listening process look for requested releases, too.
            notifications.send(self._tree, entry.contender, notifications.CHECK_HOLDS)
        return bool(have)

    def publishers(self) -> list[int]:
        """Return the contenders that have published their status."""
        found = []
        for name in self._tree.listed(PROCESSES):
            # The name of a file that is being written is no contender's.
            with suppress(ValueError):
                found.append(contender_of(name))
        return found

    def said_by(self, contender: int, before: str) -> list[SeenProcess]:
        """Return what *contender* publishes of the keys that begin with *before*."""
        said = published_by(self._tree, contender) if self._locks.alive(contender) else None
        if said is None:
            return []
        who, silent = name_of(contender), said.silent
        return [SeenProcess(who, said.host, said.pid, row, silent) for row in said.rows(before)]

    def _living(self, line: list[QueueEntry]) -> list[QueueEntry]:
        return [entry for entry in line if self._locks.alive(entry.contender)]

    def _seen_process(self, contender: int, key: str) -> SeenProcess:
        said = published_by(self._tree, contender)
        if said is not None:
            return SeenProcess(name_of(contender), said.host, said.pid, said.row(key), said.silent)
        # The kernel knows the pid of a process of this host that has published nothing yet.
        pid = self._locks.pid(contender)
        return SeenProcess(name_of(contender), socket.gethostname() if pid else "", pid or 0)


#: The folder of the requested releases, with an empty file ``<contender>~<proof>`` for each.
WANTED = "wanted"
#: Seconds that a request for an unknown hold is kept: its acquisition may not have returned yet.
_UNKNOWN = 60.0


class ReleaseRequests:
    """The requested releases of one contender, whose entries are *entries*, by token. Thread-safe."""

    def __init__(self, tree: Tree, contender: int, entries: Mapping[str, QueueEntry]) -> None:
        self._tree = tree
        self._before = f"{name_of(contender)}~"
        self._entries = entries
        self._told: set[str] = set()

    def of(self, requests: Sequence[LockRequest]) -> Iterator[LockRequest]:
        """Yield those of *requests* whose release was requested."""
        if found := self._found():
            for request in requests:
                if (proof := proof_of(request.token)) in found:
                    self._told.add(proof)
                    yield request

    def has_news(self) -> bool:
        """Return whether a release was requested that `of` has not yielded yet."""
        return bool(self._found() - self._told)

    def end(self) -> None:
        """Delete all requests to release, because the contender holds nothing any more."""
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
        names = self._tree.listed(WANTED)
        return {name.removeprefix(self._before) for name in names if name.startswith(self._before)}

    def _forget(self, proof: str, until: float) -> None:
        """Delete the request, unless it was made after *until*, seconds since 1970."""
        path = f"{WANTED}/{self._before}{proof}"
        with suppress(OSError):
            if os.lstat(path, dir_fd=self._tree.root).st_mtime <= until:
                os.unlink(path, dir_fd=self._tree.root)


#: The folder of the published status, with a file for each contender.
PROCESSES = "processes"
#: The most keys that a process publishes.
_MOST_ROWS = 10_000


class FileStatus(NamedTuple):
    """The published status of one process."""

    host: str
    pid: int
    #: A line of JSON for each key.
    lines: Sequence[str]
    #: See `distlock.backends.inspectable.SeenProcess`.
    silent: float = 0.0

    def rows(self, before: str) -> list[StatusRow]:
        """Return the rows of the keys that begin with *before*."""
        begins = _written([before]).removesuffix('"]')
        return [StatusRow.of_parts(json.loads(line)) for line in self.lines if line.startswith(begins)]

    def row(self, key: str) -> StatusRow | None:
        """Return the row of *key*, or None."""
        return next((row for row in self.rows(key) if row.key == key), None)


class StatusFile:
    """The file in which one contender publishes its status. Thread-safe."""

    def __init__(self, tree: Tree, contender: int) -> None:
        self._tree = tree
        self._name = name_of(contender)
        self._mutex = threading.Lock()
        self._rows: dict[str, StatusRow] = {}
        self._head: tuple[object, ...] = ()
        self._ends = 0.0

    def say(
        self, about: tuple[str, int], rows: Sequence[StatusRow], gone: Sequence[str], life: float
    ) -> bool:
        """See `distlock.backends.inspectable.Announces.announce`. *about*: host and pid."""
        with self._mutex:
            going_on = clock.now() < self._ends
            if not going_on:
                self._rows.clear()
            self._rows |= {row.key: row for row in rows}
            for key in gone:
                self._rows.pop(key, None)
            head = (*about, life)
            # If the write fails, the next call has to publish all rows.
            self._ends = 0.0
            if rows or gone or head != self._head or not self._touch():
                self._write(head)
            self._head, self._ends = head, clock.now() + life
            return going_on

    def end(self) -> None:
        """Withdraw the status."""
        for suffix in ("", NEW):
            with suppress(OSError):
                os.unlink(f"{PROCESSES}/{self._name}{suffix}", dir_fd=self._tree.root)

    def _touch(self) -> bool:
        """Restart the lifetime of the status. Return False if the file is gone."""
        try:
            os.utime(f"{PROCESSES}/{self._name}", dir_fd=self._tree.root, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _write(self, head: tuple[object, ...]) -> None:
        rows = list(self._rows.values())[:_MOST_ROWS]
        text = "\n".join(map(_written, [head, *(row.parts() for row in rows)]))
        write_file(self._tree, PROCESSES, self._name, text.encode("ascii"))


def published_by(tree: Tree, contender: int) -> FileStatus | None:
    """Return what *contender* has published, and for how long it has been silent; None if nothing.

    The caller checks whether the contender lives: a silent contender may have been stopped, and keeps its
    locks.
    """
    found = read_file(tree, PROCESSES, name_of(contender))
    if found is None:
        return None
    text, status = found
    head, *lines = text.decode("ascii", "replace").split("\n")
    host, pid, life = json.loads(head)
    since = time.time() - status.st_mtime
    return FileStatus(host, pid, lines, since if since >= life else 0.0)


def _written(parts: Sequence[object]) -> str:
    return json.dumps(parts, separators=(",", ":"))
