"""Locks in a ZooKeeper ensemble."""

from __future__ import annotations

import math
import secrets
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import MethodType
from typing import Any

from distlock.backends.base import Acquired, Busy, Capabilities, LockRequest, Queued, Sink
from distlock.backends.findings import Finding
from distlock.backends.inspectable import Row, Seen, Sight
from distlock.backends.latches import LatchState
from distlock.backends.optional import Begun
from distlock.backends.weak_sink import WeakSink
from distlock.backends.zookeeper.address import Address
from distlock.backends.zookeeper.awaiting import Awaiting
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.examining import examine, unmade
from distlock.backends.zookeeper.exchanges import run
from distlock.backends.zookeeper.line import Line
from distlock.backends.zookeeper.lines import Lines
from distlock.backends.zookeeper.nodes import SPAN_BITS
from distlock.backends.zookeeper.sight import sight
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.numbers import LONG, check_seconds

#: How many holds are renewed in one go.
_BATCH = 500
#: What a thousand transactions come to, in numbers of fences.
_SOON = 1000 << SPAN_BITS
#: For a backend that is asked whether something is locked before it has locked anything, seconds.
_ANY_TTL = 10.0


class ZooKeeperBackend:
    """One process's locks in the ensemble at *url*: ``zookeeper://host1:2181,host2:2181/path``.

    There is a session for each ttl. *io_timeout* bounds each request, and the wait for a connection.
    *ack_window* is what a hand-off is worth until it is acknowledged. Times are in seconds.
    """

    capabilities = Capabilities(
        several_processes=True,
        lease=True,
        fence=True,
        inspect=True,
        breaks=True,
        notify=True,
        read=True,
        permits=True,
        latch=True,
    )

    def __init__(self, url: str, *, io_timeout: float = 2.0, ack_window: float = 0.5) -> None:
        self._io_timeout = check_seconds("io_timeout", io_timeout, most=LONG)
        self._ack_window = check_seconds("ack_window", ack_window, most=LONG)
        self._address = Address(url)
        self._lines = Lines(self._address, self._io_timeout, self._ack_window)
        self._awaiting = Awaiting(self._lines, self._io_timeout)
        # The last chance of a backend that is dropped without a word. At exit there is the process's end.
        weakref.finalize(self, self._lines.leave_alone).atexit = False
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
        janitors = self._lines.take_out()
        self._begin()
        for janitor in janitors:
            janitor.close()

    def after_fork(self) -> None:
        self._awaiting.forget()
        self._lines.after_fork()
        self._begin()

    def begin(self, call: MethodType, *arguments: Any) -> Begun | None:
        way = _WAYS.get(call.__func__)
        return None if way is None else way(self._awaiting, *arguments)

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        line = self._line(request.ttl)
        self._finish(request.key, line)
        self._awaiting.drop(request)
        return run(line.request(request, self._deadline(deadline)))

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        # Closed, it would open a session for it, and nobody would close that one.
        if self._lines.closed:
            return False
        self._awaiting.drop(request)
        return run(self._line(request.ttl).cancel(request, self._deadline(deadline)))

    def renew(self, requests: Sequence[LockRequest]) -> list[bool | None]:
        answers: dict[str, bool | None] = {}
        trouble: BackendUnavailable | ConfigurationError | None = None
        for ttl in sorted({request.ttl for request in requests}):
            those = [request for request in requests if request.ttl == ttl]
            try:
                for start in range(0, len(those), _BATCH):
                    batch = those[start : start + _BATCH]
                    found = self._line(ttl).renew(batch, self._renewed_by())
                    answers.update({request.token: ours for request, ours in zip(batch, found, strict=True)})
            except (BackendUnavailable, ConfigurationError) as error:
                # Each ttl has a session of its own, and the others may be well.
                trouble = error
        if trouble is not None and not answers:
            raise trouble
        return [answers.get(request.token) for request in requests]

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return not self._lines.closed and self._line(request.ttl).release(request, self._deadline(deadline))

    def post(
        self, request: LockRequest, told: Callable[[bool | None], None], deadline: float = math.inf
    ) -> None:
        line = None if self._lines.closed else self._line(request.ttl)
        if line is not None and line.post(request, told):
            return
        if not self.release(request, deadline):
            told(False)

    def settle(self, deadline: float = math.inf) -> bool:
        until, settled = self._deadline(deadline), True
        for line, _ in list(self._lines.values()):
            settled = line.unanswered.settle(until) and settled
        return settled

    def downgrade(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return run(self._line(request.ttl).downgrade(request, self._deadline(deadline)))

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        # A number is that of the ensemble's transaction that made the node. Nobody can tell it to skip
        # some, and an offset in a node would be lost with the rest of what an ensemble has lost.
        line = self._line(request.ttl)
        if self.renew([request]) != [True] or (node := line.current(request.token)) is None:
            return None
        if number < node.hold(request).number + _SOON:
            raise BackendUnavailable(
                "ZooKeeper's transactions will have passed that number in a moment: try again."
            )
        raise ConfigurationError(
            f"A database has seen the fence {number}, and ZooKeeper at {self._address.shown} has not got so "
            "far: it was set up anew, or another lock service gave that fence out. ZooKeeper can't skip "
            "numbers: raise FENCE_EPOCH (epoch= of connect), on all servers."
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
        return sight(standing, line.announcements, key, self._deadline(deadline))

    def request_release(self, key: str, deadline: float = math.inf) -> bool:
        line = self._any_line()
        self._finish(key, line)
        return line.looking.request_release(key, self._deadline(deadline))

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        return self._any_line().looking.break_hold(key, number, self._deadline(deadline))

    def announce(
        self,
        host: str,
        pid: int,
        rows: Sequence[Row],
        gone: Sequence[str],
        life: float,
        deadline: float = math.inf,
        lease: float = 0.0,
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

    def make_latch(
        self, key: str, total: int, ttl: float, maker: str, deadline: float = math.inf
    ) -> LatchState:
        return run(self._any_line().latches.make(key, total, ttl, maker, self._deadline(deadline)))

    def count_latch_down(
        self, key: str, by: int, part: str, life: str = "", deadline: float = math.inf
    ) -> LatchState | None:
        return run(self._any_line().latches.count(key, by, part, life, self._deadline(deadline)))

    def delete_latch(self, key: str, life: str = "", deadline: float = math.inf) -> bool:
        return run(self._any_line().latches.delete(key, life, self._deadline(deadline)))

    def look_at_latches(
        self, keys: Sequence[str], watch: bool = False, deadline: float = math.inf
    ) -> list[LatchState | None]:
        return run(self._any_line().latches.look(keys, watch, self._deadline(deadline)))

    def unmade(self) -> Finding | None:
        """See `distlock.backends.findings.MadeByUse`."""
        return unmade(self._any_line(), self._deadline())

    def examine(self) -> Iterator[Finding]:
        return examine(self._any_line())

    def _begin(self) -> None:
        """Start from nothing: a new contender, without sessions and threads."""
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
        return self._lines.of(ttl, self._ears)


#: How event loops begin a method.
_WAYS: dict[Callable[..., Any], Callable[..., Begun | None]] = {
    getattr(ZooKeeperBackend, name): getattr(Awaiting, name)
    for name in (
        *("request", "cancel", "post", "downgrade"),
        *("make_latch", "count_latch_down", "delete_latch", "look_at_latches"),
    )
}
