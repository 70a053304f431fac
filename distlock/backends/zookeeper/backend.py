"""Locks in a ZooKeeper ensemble."""

from __future__ import annotations

import asyncio
import math
import secrets
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import MethodType
from typing import Any

from distlock import clock
from distlock.backends.base import Acquired, Busy, Capabilities, LockRequest, Queued, Sink, WeakSink
from distlock.backends.inspectable import Finding, KeyState, SeenProcess, StatusRow
from distlock.backends.latches import LatchState
from distlock.backends.protocols import Begun
from distlock.backends.zookeeper.address import ZooKeeperAddress
from distlock.backends.zookeeper.contenders import Contenders
from distlock.backends.zookeeper.inspection import QueueInspector
from distlock.backends.zookeeper.latches import ZooKeeperLatches
from distlock.backends.zookeeper.nodes import SPAN_BITS
from distlock.backends.zookeeper.sans_io import Deadline, TaskCall, run
from distlock.backends.zookeeper.sessions import ZooKeeperSessions
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.numbers import MOST_SECONDS, check_seconds

#: The largest number of holds that one round trip renews.
_BATCH = 500
#: How many fence numbers a thousand transactions use up. A fence that is ahead by less is soon reached.
_SOON = 1000 << SPAN_BITS
#: The ttl, in seconds, of the session for calls that come before any lock, such as an operator's.
_ANY_TTL = 10.0


class ZooKeeperBackend:
    """One process's locks in the ensemble at *url*: ``zookeeper://host1:2181,host2:2181/path``.

    Each ttl has a session of its own, at most eight at a time.

    Args:
        url: The servers, with login, path and TLS settings. See `ZooKeeperAddress`.
        io_timeout: The longest time for a request, or for a connection, in seconds.
        ack_window: Seconds after which a waiter may remove a hold that was handed off and not acknowledged.

    Raises:
        ConfigurationError: *url* can't be used, or a number of seconds is out of range.
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
        self._io_timeout = check_seconds("io_timeout", io_timeout, most=MOST_SECONDS)
        ack_window = check_seconds("ack_window", ack_window, most=MOST_SECONDS)
        self._address = ZooKeeperAddress(url)
        self._sessions = ZooKeeperSessions(self._address, self._io_timeout, ack_window)
        # Closes the sessions of a backend that is dropped without close(). At exit the engine releases the
        # holds, and the server ends the sessions after their timeout.
        weakref.finalize(self, self._sessions.leave_alone).atexit = False
        #: The calls that tasks have under way, by the request's token.
        self._under_way: dict[str, TaskCall] = {}
        #: The contenders whose session has our published status; None: nothing was published yet.
        self._publishing: Contenders | None = None
        self._start_anew()

    def __repr__(self) -> str:
        return f"<ZooKeeperBackend {self._address.shown}>"

    def open(self, sink: Sink) -> None:
        self._sink = sink  # Keeps the sink alive.
        self._weak_sink = WeakSink(sink)

    def close(self) -> None:
        self.settle()
        janitors = self._sessions.take_out()
        self._start_anew()
        for janitor in janitors:
            janitor.close()

    def after_fork(self) -> None:
        self._under_way = {}
        self._sessions.after_fork()
        self._start_anew()

    def begin(self, call: MethodType, *arguments: Any) -> Begun | None:
        made = _BEGUN.get(call.__func__)
        if made is None:
            return None
        *given, latest = arguments
        request = given[0] if isinstance(given[0], LockRequest) else None
        contenders = self._sessions.ready(request)
        if contenders is None:
            return None
        # The engine relies on the end of a task's call, so `latest` keeps this deadline from being extended.
        ends = Deadline(self._io_timeout, min(latest, clock.now() + self._io_timeout), hard=True)
        if request is None:
            return TaskCall(ends, made(contenders.latches, *given, ends)).begin()
        if made is Contenders.post:
            return _sent(ends) if contenders.post(*given) else None
        self._end_hung_call(request)
        over = partial(self._under_way.pop, request.token, None)
        asked = self._under_way[request.token] = TaskCall(ends, made(contenders, *given, ends), over)
        return asked.begin()

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        contenders = self._contenders(request.ttl)
        self._finish(request.key, contenders)
        self._end_hung_call(request)
        return run(contenders.request(request, self._deadline(deadline)))

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        # After close(), a cancellation would open a session that nobody closes.
        if self._sessions.closed:
            return False
        self._end_hung_call(request)
        return run(self._contenders(request.ttl).cancel(request, self._deadline(deadline)))

    def renew(self, requests: Sequence[LockRequest]) -> list[bool | None]:
        answers: dict[str, bool | None] = {}
        trouble: BackendUnavailable | ConfigurationError | None = None
        for ttl in sorted({request.ttl for request in requests}):
            those = [request for request in requests if request.ttl == ttl]
            try:
                for start in range(0, len(those), _BATCH):
                    batch = those[start : start + _BATCH]
                    found = self._contenders(ttl).renew(batch, self._renewed_by())
                    answers.update({request.token: ours for request, ours in zip(batch, found, strict=True)})
            except (BackendUnavailable, ConfigurationError) as error:
                # The sessions of the other ttls may still work.
                trouble = error
        if trouble is not None and not answers:
            raise trouble
        return [answers.get(request.token) for request in requests]

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return not self._sessions.closed and self._contenders(request.ttl).release(
            request, self._deadline(deadline)
        )

    def post(
        self, request: LockRequest, notify: Callable[[bool | None], None], deadline: float = math.inf
    ) -> None:
        contenders = None if self._sessions.closed else self._contenders(request.ttl)
        if contenders is not None and contenders.post(request, notify):
            return
        if not self.release(request, deadline):
            notify(False)

    def settle(self, deadline: float = math.inf) -> bool:
        until, settled = self._deadline(deadline), True
        for contenders in self._sessions.contenders():
            settled = contenders.releases.settle(until) and settled
        return settled

    def downgrade(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return run(self._contenders(request.ttl).downgrade(request, self._deadline(deadline)))

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        # Fences are made of transaction numbers, which can't be skipped. An offset that is stored in
        # ZooKeeper would be lost with its data.
        contenders = self._contenders(request.ttl)
        if self.renew([request]) != [True] or (node := contenders.current(request.token)) is None:
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
        return bool(run(self._inspector(key).queue(key, self._deadline())))

    def inspect(self, key: str, deadline: float = math.inf) -> KeyState:
        """See `distlock.backends.inspectable.Inspectable`.

        The first node counts as the holder, even before it has acknowledged the lock. The remaining lease is
        unknown: `KeyState.remaining` is the longest time that the hold can outlive its process.
        """
        return self._inspector(key).key_state(key, partial(self._deadline, deadline))

    def request_release(self, key: str, deadline: float = math.inf) -> bool:
        return self._inspector(key).request_release(key, self._deadline(deadline))

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        return self._any_contenders().inspector.break_hold(key, number, self._deadline(deadline))

    def announce(
        self,
        host: str,
        pid: int,
        rows: Sequence[StatusRow],
        gone: Sequence[str],
        life: float,
        deadline: float = math.inf,
        lease: float = 0.0,
    ) -> bool:
        """See `distlock.backends.inspectable.Announces`.

        The status also expires with the session. If a process has very many keys, not all are published:
        see `distlock.backends.zookeeper.inspection`.
        """
        contenders = self._publishing
        if contenders is None or contenders.session.dead:
            contenders = self._publishing = self._any_contenders()
        return contenders.status.publish(
            self.process, (host, pid), rows, gone, life, self._deadline(deadline)
        )

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[SeenProcess]:
        return self._any_contenders().status.all(before, partial(self._deadline, deadline))

    def make_latch(
        self, key: str, total: int, ttl: float, maker: str, deadline: float = math.inf
    ) -> LatchState:
        return run(self._any_contenders().latches.make(key, total, ttl, maker, self._deadline(deadline)))

    def count_latch_down(
        self, key: str, by: int, part: str, life: str = "", deadline: float = math.inf
    ) -> LatchState | None:
        return run(self._any_contenders().latches.count(key, by, part, life, self._deadline(deadline)))

    def delete_latch(self, key: str, life: str = "", deadline: float = math.inf) -> bool:
        return run(self._any_contenders().latches.delete(key, life, self._deadline(deadline)))

    def look_at_latches(
        self, keys: Sequence[str], watch: bool = False, deadline: float = math.inf
    ) -> list[LatchState | None]:
        return run(self._any_contenders().latches.look(keys, watch, self._deadline(deadline)))

    def unmade(self) -> Finding | None:
        """See `distlock.backends.inspectable.MadeByUse`."""
        if self._any_contenders().inspector.is_made(self._deadline()):
            return None
        return Finding(
            "warning",
            "nodes",
            f"Nothing has been locked at {self._address.shown} yet.",
            "The first lock makes the nodes that are missing. If the site has locked something already, "
            "compare hosts and path with those in its settings.",
        )

    def examine(self) -> Iterator[Finding]:
        """See `distlock.backends.inspectable.Examinable`."""
        hosts, session = self._address.hosts.split(","), self._any_contenders().session
        if len(hosts) == 1:
            yield Finding(
                "warning",
                "ensemble",
                f"One host is named, {hosts[0]}: while it is away no lock can be taken.",
                "Name three or five hosts of one ensemble: zookeeper://h1,h2,h3/shop.",
            )
        else:
            yield Finding("ok", "ensemble", f"{len(hosts)} hosts are named.")
        granted = session.client.session_timeout
        said = f"The ensemble grants {granted:g} s, and ttl is {session.ttl:g} s."
        if granted > 2 * session.ttl:
            yield Finding(
                "warning",
                "session",
                f"{said} A process that crashes keeps its locks so long.",
                "Lower minSessionTimeout or tickTime on the servers.",
            )
        else:
            yield Finding("ok", "session", said)

    def _start_anew(self) -> None:
        """Take a new process id, without a published status. A closed backend can be used again."""
        self.process = secrets.token_hex(8)
        self._publishing = None

    def _end_hung_call(self, request: LockRequest) -> None:
        """End an earlier call for *request* whose event loop hangs, so that it sends nothing any more."""
        if (asked := self._under_way.get(request.token)) is not None:
            asked.drop()

    def _finish(self, key: str, contenders: Contenders) -> None:
        """Wait for pending releases of *key* in the sessions of other ttls than that of *contenders*."""
        if len(self._sessions) > 1:
            for other in self._sessions.contenders():
                if other is not contenders:
                    other.releases.finish(key, self._deadline())

    def _inspector(self, key: str) -> QueueInspector:
        """Return an inspector, after the pending releases of *key* were carried out."""
        contenders = self._any_contenders()
        self._finish(key, contenders)
        return contenders.inspector

    def _any_contenders(self) -> Contenders:
        """Return any contenders, for calls that do not depend on the session."""
        return self._contenders(next(iter(self._sessions), _ANY_TTL))

    def _renewed_by(self) -> Deadline:
        """Return the deadline for the renewals of one session. If it hangs, time is left for the others."""
        shortest = min(self._sessions) if len(self._sessions) > 1 else math.inf
        return Deadline(min(self._io_timeout, shortest / 6))

    def _deadline(self, latest: float = math.inf) -> Deadline:
        return Deadline(self._io_timeout, latest)

    def _contenders(self, ttl: float) -> Contenders:
        return self._sessions.of(ttl, self._weak_sink)


def _sent(ends: float) -> Begun:
    """Return the future of a call that waits for no reply: it is done."""
    sent = Begun(asyncio.get_running_loop(), ends)
    sent.set_result(None)
    return sent


#: The methods that tasks call without a thread, each with the method of contenders or latches that it calls.
_BEGUN: dict[Callable[..., Any], Callable[..., Any]] = {
    ZooKeeperBackend.request: Contenders.request,
    ZooKeeperBackend.cancel: Contenders.cancel,
    ZooKeeperBackend.post: Contenders.post,
    ZooKeeperBackend.downgrade: Contenders.downgrade,
    ZooKeeperBackend.make_latch: ZooKeeperLatches.make,
    ZooKeeperBackend.count_latch_down: ZooKeeperLatches.count,
    ZooKeeperBackend.delete_latch: ZooKeeperLatches.delete,
    ZooKeeperBackend.look_at_latches: ZooKeeperLatches.look,
}
