"""A queue seen from outside: its holders and waiters, breaks and requested releases, and published status."""

from __future__ import annotations

import json
import math
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Create, Delete, Exists, GetData, SetData

from distlock import clock
from distlock.backends.base import EXCLUSIVE, PERMIT, READ, LockRequest, Mode
from distlock.backends.inspectable import MOST_SHOWN, KeyState, SeenProcess, StatusRow
from distlock.backends.zookeeper import nodes
from distlock.backends.zookeeper.failures import Broken, unavailable
from distlock.backends.zookeeper.sans_io import Deadline, Exchanges, run
from distlock.backends.zookeeper.session import ZooKeeperSession, children, make_nodes
from distlock.backends.zookeeper.waiting import queue_of, says_that_it_reads
from distlock.errors import BackendUnavailable

#: How many nodes of a queue are read at once to find the first: on a busy lock some are gone by then.
_SOME = 8


class QueueState(NamedTuple):
    """A queue at one moment."""

    #: The names of the contenders.
    names: Sequence[str]
    #: How many contenders, from the first on, have the lock or are being handed it.
    holders: int
    #: The first fence of the first hold, and its mode.
    number: int
    mode: Mode
    #: How long the first hold may outlive its process, in seconds; ``inf``: unknown.
    lifetime: float


class QueueInspector:
    """Reads queues, for operators and for renewals of other clients' holds. Thread-safe."""

    def __init__(self, session: ZooKeeperSession, base: str, status: ZooKeeperStatus) -> None:
        self._session = session
        self._base = base
        self._status = status

    def queue(self, key: str, deadline: Deadline, fresh: bool = False) -> Exchanges[list[str]]:
        """Return the names of the contenders for *key*, the first one first.

        Args:
            key: The lock.
            deadline: When to give up.
            fresh: Whether a majority of the servers has to confirm the answer.

        Raises:
            Foreign: The lock's node has a child that is no contender.
        """
        path = nodes.lock_path(self._base, key)
        names = yield from children(self._session, path, deadline, self._base if fresh else "")
        return queue_of(self._session.address, key, path, names)

    def is_made(self, deadline: Deadline) -> bool:
        """Return whether the folder of the locks exists, which the first lock makes."""
        return self._session.ask([Exists(self._base, None)], deadline) != [None]

    def is_held(self, request: LockRequest, deadline: Deadline) -> bool:
        """Return whether another client has the lock with the token of *request*.

        The session of that client keeps the hold alive.
        """
        parent, prefix = nodes.lock_path(self._base, request.key), nodes.prefix_of(request.token)
        # `queue` would refuse another program's child. But that child does not end the hold.
        names = nodes.in_order(run(children(self._session, parent, deadline, self._base)))
        mine = next((name for name in names if name.startswith(prefix)), None)
        if mine is None:
            return False
        paths = [f"{parent}/{mine}", f"{parent}/{names[0]}"]
        stat, first = self._session.ask(
            [Exists(paths[0], None), GetData(paths[1], None)], deadline, KazooException
        )
        downgraded = names[0] if not isinstance(first, KazooException) and says_that_it_reads(first) else ""
        if mine not in names[: nodes.entered(names, downgraded)]:
            return False
        # `Contenders.nodes` does not have this node. So if our own session has made it, its request was given
        # up, and the node is about to be deleted.
        return self._session.checked(stat) is not None and stat.ephemeralOwner != self._session.id

    def queue_state(self, key: str, deadline: Deadline) -> QueueState | None:
        """Return the queue for *key*, or None if it is empty."""
        parent = nodes.lock_path(self._base, key)
        while names := run(self.queue(key, deadline)):
            first = [GetData(f"{parent}/{name}", None) for name in names[:_SOME]]
            for place, answer in enumerate(self._session.ask(first, deadline, KazooException)):
                if not isinstance(answer, NoNodeError):
                    return _state_of(names[place:], self._session.checked(answer))
            if clock.now() >= deadline:
                moving = KazooTimeoutError(f"the queue below {parent} moves faster than it can be read")
                raise unavailable(self._session.address, moving)
        return None

    def key_state(self, key: str, by: Callable[[], Deadline]) -> KeyState:
        """Return the state of *key*, with what its processes publish. *by* returns a request's deadline."""
        state = self.queue_state(key, by())
        if state is None:
            return KeyState()
        holding, waiting = state.names[: state.holders], state.names[state.holders :]
        first, last = holding[: 1 + MOST_SHOWN], waiting[:MOST_SHOWN]
        processes = [nodes.process_of(name) for name in (*first, *last)]
        holder, *seen = self._status.of(processes, key, by())
        out, limit = nodes.permits_of(holding)
        return KeyState(
            holder,
            state.number,
            state.lifetime,
            seen[len(first) - 1 :],
            len(waiting),
            mode=state.mode,
            others=len(holding) - 1,
            beside=seen[: len(first) - 1],
            out=out,
            limit=limit,
        )

    def request_release(self, key: str, deadline: Deadline) -> bool:
        """Request the release of all holds of *key*. Return False if there are none."""
        state = self.queue_state(key, deadline)
        if state is None:
            return False
        parent, told = nodes.lock_path(self._base, key), []
        for name in state.names[: state.holders]:
            # This write changes the node's version, as the acknowledgement of a hand-off does. So if the
            # contender hangs before it acknowledges, waiters don't remove its node: it keeps the lock until
            # its session ends.
            change = _with_request if nodes.is_ours(name) else _revoked
            told.append(run(rewrite(self._session, f"{parent}/{name}", change, deadline)))
        return any(told)

    def break_hold(self, key: str, number: int, deadline: Deadline) -> bool:
        """Delete the node whose hold of *key* begins with *number*. Return False if there is none.

        Names of nodes are not reused, so no other hold can be deleted.
        """
        state = self.queue_state(key, deadline)
        if state is None:
            return False
        parent = nodes.lock_path(self._base, key)
        names = state.names[: state.holders]
        requests = [GetData(f"{parent}/{name}", None) for name in names]
        found = self._session.ask(requests, deadline, KazooException)
        for name, said in zip(names, found, strict=True):
            if not isinstance(said, NoNodeError) and _number(name, self._session.checked(said)) == number:
                # Send this once: after a broken connection, a repetition can't tell who deleted the node.
                deletion = [Delete(f"{parent}/{name}", -1)]
                (answer,) = run(self._session.exchanging(deletion, deadline, NoNodeError))
                return not isinstance(answer, NoNodeError)
        return False


def _state_of(names: Sequence[str], said: tuple[bytes, Any]) -> QueueState:
    """Return the state of the queue *names*. *said*: the data and stat of its first node."""
    first, reads = names[0], says_that_it_reads(said)
    mode: Mode = (
        READ if reads or nodes.is_reader(first) else PERMIT if nodes.wants_permits(first) else EXCLUSIVE
    )
    holders = nodes.entered(names, downgraded=first if reads else "")
    return QueueState(names, holders, _number(first, said), mode, _lifetime(said[0]))


def _number(name: str, said: tuple[bytes, Any]) -> int:
    """Return the first fence of the hold of the node *name*. *said*: the node's data and stat."""
    if nodes.is_reader(name) or says_that_it_reads(said):
        return nodes.reading_number_of(said[1].czxid)
    return nodes.first_number_of(said[1].czxid, 1)


def _lifetime(data: bytes) -> float:
    """Return the seconds of `ZooKeeperClient.lifetime` in *data*; inf for another program's data."""
    try:
        seconds = float(data.partition(b" ")[0])
    except ValueError:
        return math.inf
    return seconds if seconds > 0 else math.inf


#: The marks of a requested release, in a node of distlock and in a node of Curator.
_REQUESTED, _REVOKED = b" wanted", b"__REVOKE__"


def is_release_requested(data: bytes) -> bool:
    """Return whether *data* of a node of ours requests its release."""
    return _REQUESTED in data or data.startswith(_REVOKED)


def rewrite(
    session: ZooKeeperSession, path: str, change: Callable[[bytes], bytes], deadline: Deadline
) -> Exchanges[bool]:
    """Replace the node's data by what *change* makes of it. Return False if the node is gone."""
    while True:
        (found,) = yield from session.asking([GetData(path, None)], deadline, NoNodeError)
        if isinstance(found, NoNodeError):
            return False
        said, stat = found
        if (new := change(said)) == said:
            return True
        written = [SetData(path, new, stat.version)]
        (answer,) = yield from session.asking(written, deadline, NoNodeError, BadVersionError)
        if not isinstance(answer, BadVersionError):
            return not isinstance(answer, NoNodeError)
        if clock.now() >= deadline:
            raise unavailable(session.address, KazooTimeoutError(f"others write to {path} all the time"))


def reading(data: bytes) -> bytes:
    """Return *data* of a writer's node after a downgrade."""
    return data if data.endswith(nodes.READING) else data + nodes.READING


def _with_request(data: bytes) -> bytes:
    if is_release_requested(data):
        return data
    if data.endswith(nodes.READING):
        return data.removesuffix(nodes.READING) + _REQUESTED + nodes.READING
    return data + _REQUESTED


def _revoked(_: bytes) -> bytes:
    return _REVOKED


_FOLDER = "%processes"
_EPHEMERAL = 1
#: How many nodes the keys of a process are spread over, and how many rows each node has at most. Servers keep
#: all nodes in memory, and accept at most a megabyte for each.
_NODES = 32
_MOST_ROWS = 125
#: How many processes are read at once.
_AT_ONCE = 20


class ZooKeeperStatus:
    """Publishes the status of this process in one session, and reads that of all. Thread-safe."""

    def __init__(self, session: ZooKeeperSession, base: str) -> None:
        self._session = session
        self._folder = f"{base}/{_FOLDER}"
        self._mutex = threading.Lock()
        self._process = ""
        #: The session that has the whole status of this process; None: no session has it.
        self._owner: int | None = None
        self._ends = 0.0
        #: The rows to publish, by number of the node and by key.
        self._rows: dict[int, dict[str, StatusRow]] = {}
        #: Whether nodes that we published earlier may still exist.
        self._remains = False

    def publish(
        self,
        process: str,
        about: tuple[str, int],
        rows: Sequence[StatusRow],
        gone: Sequence[str],
        life: float,
        deadline: Deadline,
    ) -> bool:
        """See `distlock.backends.inspectable.Announces.announce`. *about*: host and pid."""
        with self._mutex:
            self._session.connect(deadline)
            owner, known = self._session.id, process == self._process
            going_on = known and self._owner == owner is not None and clock.now() < self._ends
            if not going_on:
                self._withdraw(deadline)
                self._process = process
            self._owner, self._remains = None, True
            there, touched = set(self._rows), self._change(rows, gone)
            new = [(process, json.dumps(about))] if not going_on else []
            new += [(_name(self._process, number), self._said(number)) for number in touched - there]
            old = [(_name(self._process, number), self._said(number)) for number in touched & there]
            self._write(old, deadline)
            self._create(new, deadline)
            if self._session.id != owner:
                # It is unknown which session has which node.
                raise Broken(f"The session with ZooKeeper at {self._session.address.shown} ended.")
            self._owner, self._ends = owner, clock.now() + life
            return going_on

    def lapse(self) -> None:
        """Withdraw the status if it was not published again within its lifetime."""
        if self._owner is not None and clock.now() >= self._ends:
            with self._mutex:
                if clock.now() >= self._ends:
                    self._withdraw(Deadline(self._session.io_timeout))

    def of(self, processes: Sequence[str], key: str, deadline: Deadline) -> list[SeenProcess]:
        """Return what each of *processes* publishes of *key*."""
        seen = []
        for start in range(0, len(processes), _AT_ONCE):
            some = processes[start : start + _AT_ONCE]
            asked = [name for process in some for name in (process, _name(process, _number_of(key)))]
            found = self._read(asked, deadline)
            for process, about, rows in zip(some, found[::2], found[1::2], strict=True):
                host, pid = about or ("", 0)
                row = next((StatusRow.of_parts(parts) for parts in rows or [] if parts[0] == key), None)
                seen.append(SeenProcess(process, host, pid, row))
        return seen

    def all(self, before: str, by: Callable[[], Deadline]) -> Iterator[SeenProcess]:
        """Yield what is published of the keys that begin with *before*. *by* returns a request's deadline."""
        process, about = "", None
        for name in sorted(run(children(self._session, self._folder, by()))):
            # The node of a process sorts before the nodes of its rows.
            if "-" not in name:
                process, (about,) = name, self._read([name], by())
            elif about is not None and name.startswith(f"{process}-"):
                host, pid = about
                (rows,) = self._read([name], by())
                for row in (StatusRow.of_parts(parts) for parts in rows or []):
                    if row.key.startswith(before):
                        yield SeenProcess(process, host, pid, row)

    def _change(self, rows: Sequence[StatusRow], gone: Sequence[str]) -> set[int]:
        """Update the rows to publish. Return the numbers of the nodes that change."""
        touched = set()
        for row in rows:
            touched.add(number := _number_of(row.key))
            self._rows.setdefault(number, {})[row.key] = row
        for key in gone:
            touched.add(number := _number_of(key))
            self._rows.setdefault(number, {}).pop(key, None)
        return touched

    def _said(self, number: int) -> str:
        rows = list(self._rows[number].values())[:_MOST_ROWS]
        return json.dumps([row.parts() for row in rows], separators=(",", ":"))

    def _withdraw(self, deadline: Deadline) -> None:
        """Delete all nodes that this process has published."""
        if self._remains:
            names = [self._process, *(_name(self._process, number) for number in range(_NODES))]
            self._session.ask([Delete(f"{self._folder}/{name}", -1) for name in names], deadline, NoNodeError)
        self._rows.clear()
        self._owner, self._remains = None, False

    def _write(self, said: Sequence[tuple[str, str]], deadline: Deadline) -> None:
        requests = [SetData(f"{self._folder}/{name}", data.encode(), -1) for name, data in said]
        if requests:
            self._session.ask(requests, deadline)

    def _create(self, said: Sequence[tuple[str, str]], deadline: Deadline) -> None:
        acl = self._session.client.acl
        requests = [Create(f"{self._folder}/{name}", data.encode(), acl, _EPHEMERAL) for name, data in said]
        if not requests:
            return
        answers = self._session.ask(requests, deadline, NoNodeError, NodeExistsError)
        if any(isinstance(answer, NoNodeError) for answer in answers):
            run(make_nodes(self._session, self._folder, deadline))
            answers = self._session.ask(requests, deadline, NodeExistsError)
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, NodeExistsError):
                # An earlier attempt or session of this process has made the node.
                _, answer = self._session.ask([Delete(request.path, -1), request], deadline, KazooException)
                self._session.checked(answer)

    def _read(self, names: Sequence[str], deadline: Deadline) -> list[Any]:
        """Return the parsed contents of the nodes *names*, with None for each that does not exist."""
        requests = [GetData(f"{self._folder}/{name}", None) for name in names]
        answers = self._session.ask(requests, deadline, NoNodeError)
        found: list[Any] = []
        for name, answer in zip(names, answers, strict=True):
            try:
                found.append(None if isinstance(answer, NoNodeError) else json.loads(answer[0]))
            except ValueError as error:
                raise BackendUnavailable(
                    f"ZooKeeper at {self._session.address.shown} has something in {self._folder}/{name} that "
                    f"distlock did not write ({error}). Delete that node."
                ) from error
        return found


def _number_of(key: str) -> int:
    """Return the number of the node that has *key*."""
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) % _NODES


def _name(process: str, number: int) -> str:
    return f"{process}-{number:02d}"
