"""What processes say of themselves, for people who look: in ephemeral nodes, beside the locks.

| node | what is in it, as JSON |
|---|---|
| ``<base>/%processes/<process>`` | its host and pid |
| ``<base>/%processes/<process>-<number>`` | what it says of some of its keys, a list for each |

A key's number follows from its text, so that one small read finds it. No lock's node can be called as the
folder is.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Create, Delete, GetChildren, GetData, SetData

from distlock import clock
from distlock.backends.inspectable import Row, Seen
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.exchanges import run
from distlock.backends.zookeeper.failures import Broken, unavailable
from distlock.backends.zookeeper.folders import make_nodes
from distlock.backends.zookeeper.session import Session
from distlock.errors import BackendUnavailable

_FOLDER = "%processes"
_EPHEMERAL = 1
#: Into how many nodes the keys of a process are divided, and how many rows one of them has at most. Servers
#: keep all nodes in memory, and take at most a megabyte for each.
_NODES = 32
_MOST_ROWS = 125
#: How many processes are read at once.
_AT_ONCE = 20


class Announcements:
    """Of one session, with which they end. Threads share it."""

    def __init__(self, session: Session, base: str) -> None:
        self._session = session
        self._folder = f"{base}/{_FOLDER}"
        self._mutex = threading.Lock()
        self._process = ""
        #: The session that has all of what we have said; None: nothing is said.
        self._owner: int | None = None
        self._ends = 0.0
        #: By number of the node: what is to be said there.
        self._rows: dict[int, dict[str, Row]] = {}
        #: Some of what we once said may stand there still.
        self._remains = False

    def say(
        self,
        process: str,
        about: tuple[str, int],
        rows: Sequence[Row],
        gone: Sequence[str],
        life: float,
        deadline: Deadline,
    ) -> bool:
        """See `distlock.backends.inspectable.Inspectable.announce`. *about*: host and pid."""
        with self._mutex:
            self._session.connect(deadline)
            owner, known = self._session.id, process == self._process
            going_on = known and self._owner == owner is not None and clock.now() < self._ends
            if not going_on:
                self._unsay(deadline)
                self._process = process
            self._owner, self._remains = None, True
            there, touched = set(self._rows), self._change(rows, gone)
            new = [(process, json.dumps(about))] if not going_on else []
            new += [(self._name(number), self._said(number)) for number in touched - there]
            old = [(self._name(number), self._said(number)) for number in touched & there]
            self._write(old, deadline)
            self._create(new, deadline)
            if self._session.id != owner:
                # Nobody knows what of it belongs to which.
                raise Broken(f"The session with ZooKeeper at {self._session.address.shown} ended.")
            self._owner, self._ends = owner, clock.now() + life
            return going_on

    def lapse(self) -> None:
        """Forget what nobody has said again for its whole life."""
        if self._owner is not None and clock.now() >= self._ends:
            with self._mutex:
                if clock.now() >= self._ends:
                    self._unsay(Deadline(self._session.io_timeout))

    def of(self, processes: Sequence[str], key: str, deadline: Deadline) -> list[Seen]:
        """What each of *processes* says of *key*."""
        seen = []
        for start in range(0, len(processes), _AT_ONCE):
            some = processes[start : start + _AT_ONCE]
            asked = [name for process in some for name in (process, _name(process, _number_of(key)))]
            found = self._read(asked, deadline)
            for process, about, rows in zip(some, found[::2], found[1::2], strict=True):
                host, pid = about or ("", 0)
                row = next((Row.of_parts(parts) for parts in rows or [] if parts[0] == key), None)
                seen.append(Seen(process, host, pid, row))
        return seen

    def all(self, before: str, by: Callable[[], Deadline]) -> Iterator[Seen]:
        """What is said of the keys that begin with *before*, a node at a time. *by*: for each request."""
        (listed,) = self._session.ask([GetChildren(self._folder, None)], by())
        names = [] if isinstance(listed, NoNodeError) else sorted(self._checked(listed))
        process, about = "", None
        for name in names:
            # A process stands before what it says.
            if "-" not in name:
                process, (about,) = name, self._read([name], by())
            elif about is not None and name.startswith(f"{process}-"):
                host, pid = about
                (rows,) = self._read([name], by())
                for row in (Row.of_parts(parts) for parts in rows or []):
                    if row.key.startswith(before):
                        yield Seen(process, host, pid, row)

    def _change(self, rows: Sequence[Row], gone: Sequence[str]) -> set[int]:
        """Take note of it. Returns the numbers of the nodes that it concerns."""
        touched = set()
        for row in rows:
            touched.add(number := _number_of(row.key))
            self._rows.setdefault(number, {})[row.key] = row
        for key in gone:
            touched.add(number := _number_of(key))
            self._rows.setdefault(number, {}).pop(key, None)
        return touched

    def _name(self, number: int) -> str:
        return _name(self._process, number)

    def _said(self, number: int) -> str:
        rows = list(self._rows[number].values())[:_MOST_ROWS]
        return json.dumps([row.parts() for row in rows], separators=(",", ":"))

    def _unsay(self, deadline: Deadline) -> None:
        """Begin anew, from nothing."""
        if self._remains:
            names = [self._process, *(self._name(number) for number in range(_NODES))]
            requests = [Delete(f"{self._folder}/{name}", -1) for name in names]
            for answer in self._session.ask(requests, deadline):
                if not isinstance(answer, NoNodeError):
                    self._checked(answer)
        self._rows.clear()
        self._owner, self._remains = None, False

    def _write(self, said: Sequence[tuple[str, str]], deadline: Deadline) -> None:
        requests = [SetData(f"{self._folder}/{name}", data.encode(), -1) for name, data in said]
        if requests:
            for answer in self._session.ask(requests, deadline):
                self._checked(answer)

    def _create(self, said: Sequence[tuple[str, str]], deadline: Deadline) -> None:
        acl = self._session.wire.acl
        requests = [Create(f"{self._folder}/{name}", data.encode(), acl, _EPHEMERAL) for name, data in said]
        if not requests:
            return
        answers = self._session.ask(requests, deadline)
        if any(isinstance(answer, NoNodeError) for answer in answers):
            run(make_nodes(self._session, self._folder, deadline))
            answers = self._session.ask(requests, deadline)
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, NodeExistsError):
                # Ours: made by a first attempt, or by a session that is not ours any more.
                _, answer = self._session.ask([Delete(request.path, -1), request], deadline)
            self._checked(answer)

    def _read(self, names: Sequence[str], deadline: Deadline) -> list[Any]:
        """What is in the nodes *names*; None for each that is not there."""
        answers = self._session.ask([GetData(f"{self._folder}/{name}", None) for name in names], deadline)
        found: list[Any] = []
        for name, answer in zip(names, answers, strict=True):
            try:
                gone = isinstance(answer, NoNodeError)
                found.append(None if gone else json.loads(self._checked(answer)[0]))
            except ValueError as error:
                raise BackendUnavailable(
                    f"ZooKeeper at {self._session.address.shown} has something in {self._folder}/{name} that "
                    f"distlock did not write ({error}). Delete that node."
                ) from error
        return found

    def _checked(self, answer: Any) -> Any:
        if isinstance(answer, KazooException):
            raise unavailable(self._session.address, answer)
        return answer


def _number_of(key: str) -> int:
    """In the node of which number *key* stands."""
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) % _NODES


def _name(process: str, number: int) -> str:
    return f"{process}-{number:02d}"
