"""Latches in ZooKeeper, beside the locks. They belong to no session.

| node | what it is |
|---|---|
| ``<base>/%latches/<latch>`` | the latch, JSON; each count writes it anew |
| ``<base>/%latches/<latch>/open`` | it is open: made by the last count, for those that watch |

A latch lives for its ttl after it was written, by the clock of the ensemble's leader: a write to the folder
tells that, and a read behind it is not answered from an old state. No lock's node can be called as the
folder is.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from kazoo.protocol.serialization import Create, Delete, GetChildren, GetChildren2, GetData, SetData

from distlock import clock
from distlock.backends.base import Sink
from distlock.backends.latch_record import LatchRecord
from distlock.backends.latches import LatchState
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.exchanges import Exchanges
from distlock.backends.zookeeper.failures import unavailable
from distlock.backends.zookeeper.folders import make_nodes
from distlock.backends.zookeeper.session import Session
from distlock.backends.zookeeper.watcher import Watcher
from distlock.errors import BackendUnavailable
from distlock.names import encode

_FOLDER = "%latches"
_OPEN = "open"
#: At so many others is looked where one is made: those that are over are deleted.
_SWEPT = 20
#: How many are read at once.
_AT_ONCE = 50


class _Kept(NamedTuple):
    record: LatchRecord
    #: Seconds that it has left; less than 0: it is over.
    rest: float
    version: int


class Latches:
    """Seen through one session. Threads share it. *sink* is told when one that is watched opens."""

    def __init__(self, session: Session, base: str, sink: Sink) -> None:
        self._session = session
        self._folder = f"{base}/{_FOLDER}"
        self._sink = sink

    def make(self, key: str, total: int, ttl: float, maker: str, deadline: Deadline) -> Exchanges[LatchState]:
        yield from self._make_folder(deadline)
        yield from self._sweep(deadline)
        path = self._path(key)
        made = LatchRecord(maker, total, total, ttl)
        while True:
            (kept,) = yield from self._read([path], deadline)
            if kept is not None and kept.rest > 0:
                return kept.record.state(kept.rest)
            if kept is None:
                write: Any = Create(path, made.written(), self._session.wire.acl, 0)
            else:
                # The one before it is over, and was open perhaps.
                (closed,) = yield from self._ask([Delete(f"{path}/{_OPEN}", -1)], deadline)
                self._told(closed, NoNodeError)
                write = SetData(path, made.written(), kept.version)
            (answer,) = yield from self._ask([write], deadline)
            if self._told(answer, NodeExistsError, NoNodeError, BadVersionError):
                return made.state(ttl)

    def count(self, key: str, by: int, part: str, deadline: Deadline) -> Exchanges[LatchState | None]:
        path = self._path(key)
        while True:
            (kept,) = yield from self._read([path], deadline)
            if kept is None or kept.rest <= 0:
                return None
            record, rest = kept.record, kept.rest
            if record.count(by, part):
                write = SetData(path, record.written(), kept.version)
                (answer,) = yield from self._ask([write], deadline)
                if not self._told(answer, NoNodeError, BadVersionError):
                    # Somebody else has counted meanwhile.
                    continue
                rest = record.ttl
            if not record.left:
                # Also where it was open before: the one that opened it may have died before it said so.
                yield from self._say_that_it_is_open(path, deadline)
            return record.state(rest)

    def _say_that_it_is_open(self, path: str, deadline: Deadline) -> Exchanges[None]:
        said = Create(f"{path}/{_OPEN}", b"", self._session.wire.acl, 0)
        (answer,) = yield from self._ask([said], deadline)
        self._told(answer, NodeExistsError, NoNodeError)

    def delete(self, key: str, deadline: Deadline) -> Exchanges[bool]:
        path = self._path(key)
        there = False
        while True:
            (kept,) = yield from self._read([path], deadline)
            if kept is None:
                return there
            there = there or kept.rest > 0
            # Those that watch are told by the server.
            deletions = [Delete(f"{path}/{_OPEN}", -1), Delete(path, kept.version)]
            *_, deleted = yield from self._ask(deletions, deadline)
            if self._told(deleted, NoNodeError, BadVersionError, NotEmptyError):
                return there
            # Somebody else has counted or deleted it meanwhile.

    def look(
        self, keys: Sequence[str], watch: bool, deadline: Deadline
    ) -> Exchanges[list[LatchState | None]]:
        seen: list[LatchState | None] = []
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            found = yield from self._read([self._path(key) for key in some], deadline, some if watch else ())
            seen += [kept.record.state(kept.rest) if kept and kept.rest > 0 else None for kept in found]
        return seen

    def _read(
        self, paths: Sequence[str], deadline: Deadline, watched: Sequence[str] = ()
    ) -> Exchanges[list[_Kept | None]]:
        """What is at *paths* now. *watched*: their keys, if they are to be watched."""
        now, answers = yield from self._get(paths, deadline, watched)
        return [self._kept(path, answer, now) for path, answer in zip(paths, answers, strict=True)]

    def _get(
        self, paths: Sequence[str], deadline: Deadline, watched: Sequence[str] = ()
    ) -> Exchanges[tuple[int, Sequence[Any]]]:
        """The server's time, milliseconds, and what it says of *paths*."""
        asked: list[Any] = [SetData(self._folder, b"", -1)]
        # A count does not wake those that watch the children. What opens before that is seen by the read.
        watches = [
            GetChildren2(path, Watcher(self._changed, key, self._changed))
            for path, key in zip(paths, watched, strict=False)
        ]
        answers = yield from self._ask([*asked, *watches, *(GetData(path, None) for path in paths)], deadline)
        if isinstance(answers[0], NoNodeError):
            return 0, [answers[0]] * len(paths)
        for answer in answers[1 : 1 + len(watches)]:
            self._told(answer, NoNodeError)
        return self._checked(answers[0]).mtime, answers[1 + len(watches) :]

    def _kept(self, path: str, answer: Any, now: int) -> _Kept | None:
        if isinstance(answer, NoNodeError):
            return None
        text, stat = self._checked(answer)
        try:
            record = LatchRecord.read(text)
        except ValueError as error:
            raise BackendUnavailable(
                f"ZooKeeper at {self._session.address.shown} has something in {path} that distlock did not "
                f"write ({error}). Delete that node."
            ) from error
        return _Kept(record, (stat.mtime - now) / 1000 + record.ttl, stat.version)

    def _changed(self, key: str, path: str) -> None:
        """One that is watched has opened, or is deleted. Runs in kazoo's thread."""
        self._sink.hint(key)

    def _make_folder(self, deadline: Deadline) -> Exchanges[None]:
        (stat,) = yield from self._ask([SetData(self._folder, b"", -1)], deadline)
        if isinstance(stat, NoNodeError):
            yield from make_nodes(self._session, self._folder, deadline)

    def _sweep(self, deadline: Deadline) -> Exchanges[None]:
        """Delete some that are over: they have no session that would take them along."""
        (listed,) = yield from self._ask([GetChildren(self._folder, None)], deadline)
        names = self._checked(listed)
        some = [f"{self._folder}/{name}" for name in random.sample(names, min(len(names), _SWEPT))]
        now, answers = yield from self._get(some, deadline)
        for path, found in zip(some, answers, strict=True):
            try:
                kept = self._kept(path, found, now)
            except BackendUnavailable:
                continue  # A caller of that latch is told.
            if kept is not None and kept.rest <= 0:
                deletions = [Delete(f"{path}/{_OPEN}", -1), Delete(path, kept.version)]
                for answer in (yield from self._ask(deletions, deadline)):
                    self._told(answer, NoNodeError, BadVersionError, NotEmptyError)

    def _path(self, key: str) -> str:
        return f"{self._folder}/{encode(key)}"

    def _ask(self, requests: Sequence[Any], deadline: Deadline) -> Exchanges[list[Any]]:
        """What is refused twice was carried out at first. Raises `BackendUnavailable` after *deadline*."""
        if clock.now() >= deadline:
            raise BackendUnavailable(
                f"ZooKeeper at {self._session.address.shown} was written to by too many at once to count in "
                "time. Nothing is lost: try again."
            )
        return (yield from self._session.asking(requests, deadline))

    def _told(self, answer: Any, *expected: type[KazooException]) -> bool:
        """Whether it was carried out; False: the server refused it as *expected*."""
        if isinstance(answer, expected):
            return False
        self._checked(answer)
        return True

    def _checked(self, answer: Any) -> Any:
        if isinstance(answer, KazooException):
            raise unavailable(self._session.address, answer)
        return answer
