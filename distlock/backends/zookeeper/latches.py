"""Latches in ZooKeeper, beside the locks. They belong to no session.

| node | value |
|---|---|
| ``<base>/%latches/<latch>`` | the latch, JSON; each count writes it anew |
| ``<base>/%latches/<latch>/open`` | says that the latch is open; the last count makes it, for watchers |
| ``<base>/%latches/<latch>/made-<random>`` | identifies this node: made and deleted with the latch |

A node that is made again has the versions of its predecessor again. So a write that depends on an earlier
read checks, in the same transaction, that the child ``made-…`` is still there. Otherwise a late write could
change a later latch of the same name.

A latch expires its ttl after its last write, by the clock of the ensemble's leader. A write to the folder
returns that time, and the reads after it are not stale. No lock's node has the name of the folder.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

from kazoo import exceptions
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.protocol import serialization as wire
from kazoo.protocol.serialization import Create, Delete, GetChildren, GetData, SetData

from distlock import clock
from distlock.backends.base import Sink
from distlock.backends.latches import LatchRecord, LatchState
from distlock.backends.zookeeper.failures import Broken
from distlock.backends.zookeeper.sans_io import Deadline, Exchanges
from distlock.backends.zookeeper.session import ZooKeeperSession, children, make_nodes
from distlock.backends.zookeeper.waiting import Watcher
from distlock.errors import BackendUnavailable
from distlock.names import encode

_FOLDER = "%latches"
_OPEN = "open"
_MADE = "made-"
#: The errors in a transaction if another caller was faster: of the refused operation, and of the other ones.
_CHANGED = (
    exceptions.BadVersionError,
    exceptions.NodeExistsError,
    exceptions.NoNodeError,
    exceptions.NotEmptyError,
    exceptions.RolledBackError,
    exceptions.RuntimeInconsistency,
)
#: How many other latches `make` looks at, to delete expired ones.
_SWEPT = 20
#: How many latches are read at once.
_AT_ONCE = 50


class _LatchNode(NamedTuple):
    record: LatchRecord
    #: Seconds until the latch expires; 0 or less if it has expired.
    rest: float
    version: int
    #: The transaction that made the latch's node.
    czxid: int

    @property
    def life(self) -> str:
        """The id of this life of the latch. A later life may have the same node, but has another maker."""
        return f"{self.record.maker}@{self.czxid:x}"

    def is_life(self, life: str) -> bool:
        """Return whether this is *life* ("": any), and has not expired."""
        return self.rest > 0 and life in ("", self.life)

    def state(self) -> LatchState:
        return self.record.state(self.rest, self.life)


class ZooKeeperLatches:
    """Latches in one session. Thread-safe. *sink* is notified when a watched latch opens or is deleted."""

    def __init__(self, session: ZooKeeperSession, base: str, sink: Sink) -> None:
        self._session = session
        self._folder = f"{base}/{_FOLDER}"
        self._sink = sink

    def make(self, key: str, total: int, ttl: float, maker: str, deadline: Deadline) -> Exchanges[LatchState]:
        yield from self._make_folder(deadline)
        yield from self._sweep(deadline)
        path = self._path(key)
        made = LatchRecord(maker, total, total, ttl)
        while True:
            kept, marks = yield from self._read_to_write(path, deadline)
            if kept is not None and kept.rest > 0:
                return kept.state()
            if kept is None:
                acl = self._session.client.acl
                mark = f"{path}/{_MADE}{secrets.token_hex(8)}"
                write: list[Any] = [Create(path, made.written(), acl, 0), Create(mark, b"", acl, 0)]
                # The answer to this write has the node's czxid.
                write.append(SetData(path, made.written(), 0))
            else:
                # The latch in this node has expired, and may have been open.
                yield from self._ask([Delete(f"{path}/{_OPEN}", -1)], deadline, NoNodeError)
                write = [*map(_is_there, marks), SetData(path, made.written(), kept.version)]
            if (stat := (yield from self._write(write, deadline))) is not None:
                return _LatchNode(made, ttl, stat.version, stat.czxid).state()

    def count(
        self, key: str, by: int, part: str, life: str, deadline: Deadline
    ) -> Exchanges[LatchState | None]:
        path = self._path(key)
        while True:
            kept, marks = yield from self._read_to_write(path, deadline)
            if kept is None or not kept.is_life(life):
                return None
            life, record = kept.life, kept.record
            if record.count(by, part):
                write = [*map(_is_there, marks), SetData(path, record.written(), kept.version)]
                if (yield from self._write(write, deadline)) is None:
                    # Another caller has counted meanwhile, or the outcome is unknown.
                    continue
                kept = _LatchNode(record, record.ttl, kept.version, kept.czxid)
            if not record.left:
                # Do this even if the latch was open before: the caller whose count opened it may have died
                # before it made the node ``open``.
                yield from self._say_that_it_is_open(path, deadline)
            return kept.state()

    def _say_that_it_is_open(self, path: str, deadline: Deadline) -> Exchanges[None]:
        said = Create(f"{path}/{_OPEN}", b"", self._session.client.acl, 0)
        yield from self._ask([said], deadline, NodeExistsError, NoNodeError)

    def delete(self, key: str, life: str, deadline: Deadline) -> Exchanges[bool]:
        path = self._path(key)
        while True:
            kept, marks = yield from self._read_to_write(path, deadline)
            if kept is None or not kept.is_life(life):
                return False
            life = kept.life
            # The server notifies the watchers.
            if (yield from self._delete(path, marks, kept.version, deadline)):
                return True
            # Another caller has counted or deleted the latch meanwhile, or the outcome is unknown.

    def _delete(self, path: str, marks: Sequence[str], version: int, deadline: Deadline) -> Exchanges[bool]:
        """Delete the latch at *path*. Return False if it has changed, or if the outcome is unknown."""
        yield from self._ask([Delete(f"{path}/{_OPEN}", -1)], deadline, NoNodeError)
        deletions = [*(Delete(mark, -1) for mark in marks), Delete(path, version)]
        return (yield from self._write(deletions, deadline)) is not None

    def _read_to_write(self, path: str, deadline: Deadline) -> Exchanges[tuple[_LatchNode | None, list[str]]]:
        """Return the latch at *path*, or None, and the paths of the children that a write has to find."""
        now, (listed,), (answer,) = yield from self._get([path], deadline, [GetChildren(path, None)])
        if isinstance(listed, NoNodeError):
            # If a latch was made after this answer, we don't know its child ``made-…``.
            return None, []
        names = self._session.checked(listed)
        marks = [f"{path}/{name}" for name in names if name.startswith(_MADE)]
        return self._kept(path, answer, now), marks

    def _write(self, operations: Sequence[Any], deadline: Deadline) -> Exchanges[Any]:
        """Send *operations* once, as one transaction.

        Return the answer to the last one; None if none was carried out, or the outcome is unknown.
        """
        try:
            (said,) = yield from self._session.exchanging([wire.Transaction(operations)], deadline)
        except Broken:
            if clock.now() >= deadline:
                raise
            return None
        # If one operation is refused, the others have errors, too.
        refused = [one for one in said if isinstance(one, KazooException)]
        for one in refused:
            if not isinstance(one, _CHANGED):
                self._session.checked(one)
        return None if refused else said[-1]

    def look(
        self, keys: Sequence[str], watch: bool, deadline: Deadline
    ) -> Exchanges[list[LatchState | None]]:
        seen: list[LatchState | None] = []
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            paths = [self._path(key) for key in some]
            # The watch on the children is not triggered by counts. If the latch is open already, the read
            # after the watch shows it.
            watches = [
                wire.GetChildren2(path, Watcher(self._changed, key, self._changed))
                for path, key in zip(paths, some, strict=True)
            ]
            now, _, answers = yield from self._get(paths, deadline, watches if watch else ())
            for path, answer in zip(paths, answers, strict=True):
                kept = self._kept(path, answer, now)
                seen.append(kept.state() if kept is not None and kept.rest > 0 else None)
        return seen

    def _get(
        self, paths: Sequence[str], deadline: Deadline, before: Sequence[Any] = ()
    ) -> Exchanges[tuple[int, Sequence[Any], Sequence[Any]]]:
        """Return the server's time in milliseconds, and the answers to *before* and to reads of *paths*.

        An answer may be a `KazooException`, and a read gives data and stat.
        """
        asked = [SetData(self._folder, b"", -1), *before, *(GetData(path, None) for path in paths)]
        said, *answers = yield from self._ask(asked, deadline, KazooException)
        if isinstance(said, NoNodeError):
            return 0, [said] * len(before), [said] * len(paths)
        return self._session.checked(said).mtime, answers[: len(before)], answers[len(before) :]

    def _kept(self, path: str, answer: Any, now: int) -> _LatchNode | None:
        if isinstance(answer, NoNodeError):
            return None
        text, stat = self._session.checked(answer)
        try:
            record = LatchRecord.read(text)
        except ValueError as error:
            raise BackendUnavailable(
                f"ZooKeeper at {self._session.address.shown} has something in {path} that distlock did not "
                f"write ({error}). Delete that node."
            ) from error
        return _LatchNode(record, (stat.mtime - now) / 1000 + record.ttl, stat.version, stat.czxid)

    def _changed(self, key: str, path: str) -> None:
        """Handle that a watched latch opened or was deleted. kazoo's thread calls this."""
        self._sink.notified(key)

    def _make_folder(self, deadline: Deadline) -> Exchanges[None]:
        (stat,) = yield from self._ask([SetData(self._folder, b"", -1)], deadline, NoNodeError)
        if isinstance(stat, NoNodeError):
            yield from make_nodes(self._session, self._folder, deadline)

    def _sweep(self, deadline: Deadline) -> Exchanges[None]:
        """Delete some expired latches. They don't end with a session."""
        names = yield from children(self._session, self._folder, deadline)
        some = [f"{self._folder}/{name}" for name in random.sample(names, min(len(names), _SWEPT))]
        now, _, answers = yield from self._get(some, deadline)
        for path, found in zip(some, answers, strict=True):
            try:
                kept = self._kept(path, found, now)
            except BackendUnavailable:
                continue  # A caller of that latch gets the error.
            if kept is not None and kept.rest <= 0:
                # Read the latch again, with its children: it may have been deleted and made anew meanwhile.
                kept, marks = yield from self._read_to_write(path, deadline)
                if kept is not None and kept.rest <= 0:
                    yield from self._delete(path, marks, kept.version, deadline)

    def _path(self, key: str) -> str:
        return f"{self._folder}/{encode(key)}"

    def _ask(
        self, requests: Sequence[Any], deadline: Deadline, *expected: type[KazooException]
    ) -> Exchanges[list[Any]]:
        """Send *requests* as `ZooKeeperSession.asking` does. Raises `BackendUnavailable` after *deadline*.

        Callers repeat their requests whenever another caller has written in between, until that error.
        """
        if clock.now() >= deadline:
            raise BackendUnavailable(
                f"ZooKeeper at {self._session.address.shown} was written to by too many at once to count in "
                "time. Nothing is lost: try again."
            )
        return (yield from self._session.asking(requests, deadline, *expected))


def _is_there(path: str) -> wire.CheckVersion:
    return wire.CheckVersion(path, -1)
