"""Locks in a ZooKeeper ensemble."""

from __future__ import annotations

import math
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from distlock.backends.base import Ask, Busy, Capabilities, Held, Queued, Sink
from distlock.backends.findings import Finding
from distlock.backends.inspectable import MOST_SHOWN, Row, Seen, Sight
from distlock.backends.weak_sink import WeakSink
from distlock.backends.zookeeper.address import Address
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.examining import examine, unmade
from distlock.backends.zookeeper.janitor import Janitor
from distlock.backends.zookeeper.line import Line
from distlock.backends.zookeeper.nodes import FOLDER, SPAN_BITS, process_of
from distlock.backends.zookeeper.session import Session
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.numbers import LONG, check_seconds

T = TypeVar("T")

#: How many holds are renewed in one go.
_BATCH = 500
#: Sessions cost threads. More ttls than this are most likely not meant.
_MOST_SESSIONS = 8
#: What a thousand transactions come to, in numbers of fences.
_SOON = 1000 << SPAN_BITS
#: For a backend that is asked whether something is locked before it has locked anything, seconds.
_ANY_TTL = 10.0


class ZooKeeperBackend:
    """One process's locks in the ensemble at *url*: ``zookeeper://host1:2181,host2:2181/path``.

    There is a session for each ttl. *io_timeout* bounds each request, and the wait for a connection.
    *ack_window* is what a hand-over is worth until it is acknowledged. Times are in seconds.
    """

    capabilities = Capabilities(several_processes=True, lease=True, fence=True, inspect=True)

    def __init__(self, url: str, *, io_timeout: float = 2.0, ack_window: float = 0.5) -> None:
        self._io_timeout = check_seconds("io_timeout", io_timeout, most=LONG)
        self._ack_window = check_seconds("ack_window", ack_window, most=LONG)
        self._address = Address(url)
        self._lines = _Lines()
        # The last chance of a backend that is dropped without a word. At exit there is the process's end.
        weakref.finalize(self, self._lines.leave_alone).atexit = False
        #: Until the next session: what we had ended with the last, or is about to.
        self._closed = False
        self._mutex = threading.Lock()
        #: The line whose session has what we say of ourselves.
        self._speaking: Line | None = None
        self._begin()

    def __repr__(self) -> str:
        return f"<ZooKeeperBackend {self._address.shown}>"

    def open(self, sink: Sink) -> None:
        # Held here: nobody else may hold it.
        self._sink = sink
        self._ears = WeakSink(sink)

    def close(self) -> None:
        self.settle()
        with self._mutex:
            lines = list(self._lines.values())
            self._begin()
            self._closed = True
        for _, janitor in lines:
            janitor.close()

    def after_fork(self) -> None:
        for line, _ in self._lines.values():
            line.session.wire.forget()
        self._mutex = threading.Lock()
        self._begin()

    def request(self, ask: Ask, deadline: float = math.inf) -> Held | Queued | Busy:
        line = self._line(ask.ttl)
        self._finish(ask.key, line)
        return line.request(ask, self._deadline(deadline))

    def cancel(self, ask: Ask, deadline: float = math.inf) -> bool:
        # Closed, it would open a session for it, and nobody would close that one.
        return not self._closed and self._line(ask.ttl).cancel(ask, self._deadline(deadline))

    def renew(self, asks: Sequence[Ask]) -> list[bool | None]:
        answers: dict[str, bool | None] = {}
        trouble: BackendUnavailable | ConfigurationError | None = None
        for ttl in sorted({ask.ttl for ask in asks}):
            those = [ask for ask in asks if ask.ttl == ttl]
            try:
                for start in range(0, len(those), _BATCH):
                    batch = those[start : start + _BATCH]
                    found = self._line(ttl).renew(batch, self._renewed_by())
                    answers.update({ask.token: ours for ask, ours in zip(batch, found, strict=True)})
            except (BackendUnavailable, ConfigurationError) as error:
                # Each ttl has a session of its own, and the others may be well.
                trouble = error
        if trouble is not None and not answers:
            raise trouble
        return [answers.get(ask.token) for ask in asks]

    def release(self, ask: Ask, deadline: float = math.inf) -> bool:
        return not self._closed and self._line(ask.ttl).release(ask, self._deadline(deadline))

    def post(self, ask: Ask, told: Callable[[bool | None], None], deadline: float = math.inf) -> None:
        line = None if self._closed else self._line(ask.ttl)
        if line is not None and line.post(ask, told):
            return
        if not self.release(ask, deadline):
            told(False)

    def settle(self, deadline: float = math.inf) -> bool:
        until, settled = self._deadline(deadline), True
        for line, _ in list(self._lines.values()):
            settled = line.unanswered.settle(until) and settled
        return settled

    def raise_floor(self, ask: Ask, number: int) -> Held | None:
        # A number is that of the ensemble's transaction that made the node. Nobody can tell it to skip
        # some, and an offset in a node would be lost with the rest of what an ensemble has lost.
        line = self._line(ask.ttl)
        if self.renew([ask]) != [True] or (node := line.current(ask.token)) is None:
            return None
        if number < node.hold().number + _SOON:
            raise BackendUnavailable(
                "ZooKeeper's transactions will have passed that number in a moment: try again."
            )
        raise ConfigurationError(
            f"A database has seen the fence {number}, and ZooKeeper at {self._address.shown} has not got so "
            "far: it was set up anew, or another lock service gave that fence out. ZooKeeper can't skip "
            "numbers: raise ERA (era= of connect), on all servers."
        )

    def locked(self, key: str) -> bool:
        line = self._any_line()
        self._finish(key, line)
        return line.locked(key, self._deadline())

    def inspect(self, key: str, deadline: float = math.inf) -> Sight:
        """See `distlock.backends.inspectable.Inspectable`.

        The first node counts as the holder, also while it has not taken the lock yet. What is left of a lease
        is not known, only the whole: the hold ends at the latest so many seconds after its process.
        """
        line = self._any_line()
        self._finish(key, line)
        standing = line.looking.standing(key, self._deadline(deadline))
        if standing is None:
            return Sight()
        processes = [process_of(name) for name in standing.names[: MOST_SHOWN + 1]]
        holder, *queue = line.announcements.of(processes, key, self._deadline(deadline))
        return Sight(holder, standing.number, standing.lifetime, queue, len(standing.names) - 1)

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        return self._any_line().looking.break_first(key, number, self._deadline(deadline))

    def announce(
        self,
        host: str,
        pid: int,
        rows: Sequence[Row],
        gone: Sequence[str],
        life: float,
        deadline: float = math.inf,
    ) -> bool:
        """See `distlock.backends.inspectable.Inspectable`.

        It ends with the session, too. Of a process with very many keys not all are shown: see
        `distlock.backends.zookeeper.announcements`.
        """
        line = self._speaking
        if line is None or line.session.dead:
            line = self._speaking = self._any_line()
        return line.announcements.say(self.process, (host, pid), rows, gone, life, self._deadline(deadline))

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[Seen]:
        return self._any_line().announcements.all(before, lambda: self._deadline(deadline))

    def unmade(self) -> Finding | None:
        """See `distlock.backends.findings.MadeByUse`."""
        return unmade(self._any_line(), self._deadline())

    def examine(self) -> Iterator[Finding]:
        return examine(self._any_line())

    def _begin(self) -> None:
        """Start from nothing: a new contender, without sessions and threads."""
        self._lines.clear()
        self.process = secrets.token_hex(8)
        self._speaking = None

    def _finish(self, key: str, line: Line) -> None:
        """What was released in another session than that of *line* is released before that is asked."""
        if len(self._lines) > 1:
            for other, _ in list(self._lines.values()):
                if other is not line:
                    other.unanswered.finish(key, self._deadline())

    def _any_line(self) -> Line:
        """For what does not depend on a session."""
        return self._line(next(iter(self._lines), _ANY_TTL))

    def _renewed_by(self) -> Deadline:
        """A session that hangs must not cost the holds of another, which have to be renewed meanwhile."""
        shortest = min(self._lines) if len(self._lines) > 1 else math.inf
        return Deadline(min(self._io_timeout, shortest / 6))

    def _deadline(self, latest: float = math.inf) -> Deadline:
        return Deadline(self._io_timeout, latest)

    def _line(self, ttl: float) -> Line:
        found = self._lines.get(ttl)
        if found is not None and not found[0].session.dead:
            return found[0]
        with self._mutex:
            found = self._lines.get(ttl)
            again = found is not None and found[0].session.dead
            if found is not None and again:
                del self._lines[ttl]
                # It may take a while, and nobody has to wait for it.
                found[0].session.replaced = True
                found[1].leave_alone()
                found = None
            if found is None:
                if len(self._lines) >= _MOST_SESSIONS:
                    raise ConfigurationError(
                        f"More than {_MOST_SESSIONS} different ttls are in use. ZooKeeper needs a session "
                        "for each: use fewer."
                    )
                session = Session(self._address, ttl, self._io_timeout, self._ears, again)
                line = Line(session, f"{self._address.chroot}/{FOLDER}", self._ack_window, self._ears)
                found = self._lines[ttl] = (line, Janitor(line))
                self._closed = False
            return found[0]


class _Lines(dict[float, tuple[Line, Janitor]]):
    """The line of each ttl."""

    def leave_alone(self) -> None:
        while self:
            with suppress(KeyError):
                _, (_, janitor) = self.popitem()
                janitor.leave_alone()
