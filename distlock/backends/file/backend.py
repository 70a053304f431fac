"""The protocol of `distlock.backends.base`, kept with a directory of one host."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress

from distlock import clock
from distlock.backends.base import READ, Acquired, Busy, Capabilities, LockRequest, Queued, Sink
from distlock.backends.file import dropped, usable
from distlock.backends.file.calls import Call, CallForOurs
from distlock.backends.file.directory import Directory
from distlock.backends.file.entry import Entry, Spot
from distlock.backends.file.examining import examine, unmade
from distlock.backends.file.inspection import Inspection
from distlock.backends.file.latches import LatchesInFiles
from distlock.backends.file.presence import Presence
from distlock.backends.file.tickets import HIGHEST_FLOOR
from distlock.backends.file.turn import other_limit
from distlock.backends.findings import Finding
from distlock.backends.weak_sink import WeakSink
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.numbers import check_seconds

#: Releases and deaths are heard of at once; this is the net under a lost hint, and under stopped processes.
POLL = 1.0

#: Where the death of a contender before us cannot be heard of: its process is in another PID namespace.
POLL_BLIND = 0.25


class FileBackend(Inspection, LatchesInFiles):
    """Locks in the directory that *url* names: ``file:///var/lib/shop/locks``.

    *busy_timeout* is how many seconds a call waits for a process that was stopped while it wrote.
    *ack_window* is how many seconds a process has to take a lock that came to it.
    """

    capabilities = Capabilities(
        several_processes=True,
        fence=True,
        inspect=True,
        breaks=True,
        notify=True,
        read=True,
        permits=True,
        latch=True,
    )
    #: It is one that looks ahead: see `distlock.backends.base.LooksAhead`.
    refuse_unusable = staticmethod(usable.refuse_unusable)

    def __init__(self, url: str, *, busy_timeout: float = 2.0, ack_window: float = 0.5) -> None:
        self._patience = check_seconds("busy_timeout", busy_timeout, most=60)
        self._ack_window = check_seconds("ack_window", ack_window, most=60)
        self._directory = Directory(url)
        self._sink: Sink | None = None
        self._presence: Presence | None = None
        self._finalizer: weakref.finalize[[Presence], FileBackend] | None = None
        self._mutex = threading.Lock()
        dropped.forget_in_children(self)

    def open(self, sink: Sink) -> None:
        # Held here: nobody else may hold it.
        self._sink = sink

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        with self._call() as presence:
            answer = self._request(presence, request, deadline)
            presence.insist(request.token)
            return answer

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        with self._call_for_ours() as presence:
            if presence is None:
                return False
            spot = presence.line.spot(request.key)
            line = presence.line.entries(spot)
            mine = presence.ours.find(request, line)
            if mine is None:
                presence.drop(request.token)
                return False
            if mine.held or (
                not presence.line.before(mine, line)
                and presence.take(request, spot, mine, self._left(deadline)) is not None
            ):
                presence.insist(request.token)
                return True
            presence.withdraw(request.token, mine)
            # Those before us may have left meanwhile, and have hinted us.
            presence.wake_front(spot)
            return False

    def renew(self, requests: Sequence[LockRequest]) -> list[bool]:
        with self._call_for_ours() as presence:
            if presence is None:
                return [False] * len(requests)
            held = [presence.ours.holds(request, self._patience) for request in requests]
            for request in presence.wanted.of(
                [request for request, ours in zip(requests, held, strict=True) if ours]
            ):
                if self._sink is not None:
                    self._sink.release_requested(request.key, request.token)
            presence.insist()
            return held

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        with self._call_for_ours() as presence:
            if presence is None:
                return False
            spot = presence.line.spot(request.key)
            while (mine := presence.ours.own(request, spot)) is not None:
                if presence.withdraw(request.token, mine):
                    # The lock is free, whatever goes wrong with the hint.
                    with suppress(OSError):
                        presence.wake_next(spot, mine)
                    return True
                # It is gone, or another thread gives its file another name: that is in the line now.
            return False

    def downgrade(self, request: LockRequest, deadline: float = math.inf) -> bool:
        """See `distlock.backends.shared.Reads`."""
        with self._call_for_ours() as presence:
            if presence is None:
                return False
            spot = presence.line.spot(request.key)
            mine = presence.ours.own(request, spot)
            if mine is None or not presence.ours.downgrade(request, spot, mine, self._left(deadline)):
                return False
            presence.insist(request.token)
            with suppress(OSError):
                presence.wake_front(spot)
            return True

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        with self._call() as presence:
            if not presence.ours.holds(request, self._patience):
                return None
            if number > HIGHEST_FLOOR:
                raise ConfigurationError(
                    f"A database has seen the fence {number}, and files count to 2**61: another lock "
                    "service gave it out. Raise FENCE_EPOCH (epoch= of connect), on all servers: numbers "
                    "begin anew."
                )
            lifted = presence.ours.raise_fence(
                request, presence.line.spot(request.key), number, self._patience
            )
            presence.insist(request.token)
            return Acquired(lifted) if lifted is not None else None

    def locked(self, key: str) -> bool:
        if self.unmade():
            return False
        with self._call() as presence:
            return presence.looking.locked(key, self._patience)

    def unmade(self) -> Finding | None:
        """See `distlock.backends.findings.MadeByUse`."""
        return unmade(self._directory) if self._presence is None else None

    def examine(self) -> Iterator[Finding]:
        if self.unmade():
            usable.refuse_unusable_directory(self._directory)
            return iter(())
        with self._call():
            return iter(list(examine(self._directory.root)))

    def close(self) -> None:
        with self._mutex:
            presence, self._presence = self._presence, None
        if presence is not None:
            self._kept(None)
            presence.close()

    def after_fork(self) -> None:
        self._mutex = threading.Lock()
        presence, self._presence = self._presence, None
        self._kept(None)
        if presence is not None:
            presence.abandon()

    def _kept(self, presence: Presence | None) -> None:
        """Have *presence*, and no other, closed when this backend is dropped without a word."""
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = None
        if presence is not None:
            self._finalizer = weakref.finalize(self, dropped.close, presence)
            # There the end of the process is enough.
            self._finalizer.atexit = False

    def _call(self) -> Call:
        return Call(self._connected, self._directory)

    def _call_for_ours(self) -> CallForOurs:
        return CallForOurs(self._call())

    def _connected(self) -> Presence:
        """The presence of this process and of the directory that is there now, with a call begun."""
        presence = self._presence
        if presence is not None and presence.begin():
            if presence.current():
                return presence
            presence.end()
        with self._mutex:
            presence = self._presence
            if presence is not None and not presence.current():
                # Our entries went with the directory, and others may have begun anew.
                self._presence = None
                presence.desert()
                presence = None
            if presence is None:
                presence = Presence(self._directory, WeakSink(self._sink) if self._sink is not None else None)
                self._presence = presence
                self._kept(presence)
            # It is open: `close` takes it from here first, under the same lock.
            presence.begin()
            return presence

    def _request(self, presence: Presence, request: LockRequest, deadline: float) -> Acquired | Queued | Busy:
        spot = presence.line.spot(request.key)
        listening = False
        while True:
            line = presence.line.entries(spot) if request.token in presence.ours.entries else []
            mine = presence.ours.find(request, line)
            if mine is None:
                # New, or sent away while we stood still.
                mine, line = presence.join(request, spot, self._left(deadline))
            if mine is None:
                return Busy()
            before = [] if mine.held else presence.line.before(mine, line)
            if not before:
                taken = mine if mine.held else presence.take(request, spot, mine, self._left(deadline))
                if taken is None:
                    continue
                number = presence.hold(request, spot, taken, self._left(deadline))
                followed = request.mode == READ and presence.line.followed(line)
                return Acquired(number, followed=followed, other_limit=other_limit(taken, line))
            if not request.wait:
                return self._leave(presence, request, spot, mine)
            pause = presence.send_away(request, spot, before, self._ack_window, self._left(deadline))
            if not pause:
                continue
            try:
                watched = presence.await_turn(request.key, mine, before)
            except BackendUnavailable:
                self._leave(presence, request, spot, mine)
                raise
            if listening:
                return Queued(min(pause, POLL if watched else POLL_BLIND))
            # Only those that left after we began to listen have told us, so look once more.
            listening = True

    def _left(self, deadline: float) -> float:
        """How long to wait for a process that writes, seconds."""
        return min(self._patience, max(0.0, deadline - clock.now()))

    def _leave(self, presence: Presence, request: LockRequest, spot: Spot, mine: Entry) -> Busy:
        presence.withdraw(request.token, mine)
        presence.wake_front(spot)
        return Busy()
