"""Locks in a directory of one host."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress

from distlock import clock
from distlock.backends.base import READ, Acquired, Busy, Capabilities, LockRequest, Queued, Sink, WeakSink
from distlock.backends.file import health
from distlock.backends.file.directory import Directory
from distlock.backends.file.entries import QueueEntry, Spot, other_limit
from distlock.backends.file.health import examine, unmade
from distlock.backends.file.presence import (
    CallForOurs,
    Presence,
    PresenceCall,
    close_in_thread,
    forget_in_children,
)
from distlock.backends.file.queues import HIGHEST_FLOOR
from distlock.backends.file.record_locks import name_of
from distlock.backends.inspectable import Finding, KeyState, SeenProcess, StatusRow
from distlock.backends.latches import LatchState
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.numbers import check_seconds

#: Seconds between polls, in case a notification is lost or a process is stopped.
POLL = 1.0

#: The same, if a contender before us is in another PID namespace, so that its death can't be watched.
POLL_BLIND = 0.25


class FileBackend:
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
    #: See `distlock.backends.optional.LooksAhead`.
    refuse_unusable = staticmethod(health.refuse_unusable)

    def __init__(self, url: str, *, busy_timeout: float = 2.0, ack_window: float = 0.5) -> None:
        self._patience = check_seconds("busy_timeout", busy_timeout, most=60)
        self._ack_window = check_seconds("ack_window", ack_window, most=60)
        self._directory = Directory(url)
        self._sink: Sink | None = None
        self._presence: Presence | None = None
        self._finalizer: weakref.finalize[[Presence], FileBackend] | None = None
        self._mutex = threading.Lock()
        forget_in_children(self)

    def open(self, sink: Sink) -> None:
        # Only the backend may keep the sink alive.
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
            spot = presence.queues.spot(request.key)
            line = presence.queues.entries(spot)
            mine = presence.ours.find(request, line)
            if mine is None:
                presence.drop(request.token)
                return False
            if mine.held or (
                not presence.queues.before(mine, line)
                and presence.take(request, spot, mine, self._left(deadline)) is not None
            ):
                presence.insist(request.token)
                return True
            presence.withdraw(request.token, mine)
            # The contenders before us may have left meanwhile, and have notified us.
            presence.wake_front(spot)
            return False

    def renew(self, requests: Sequence[LockRequest]) -> list[bool]:
        with self._call_for_ours() as presence:
            if presence is None:
                return [False] * len(requests)
            held = [presence.ours.holds(request, self._patience) for request in requests]
            for request in presence.release_requests.of(
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
            spot = presence.queues.spot(request.key)
            while (mine := presence.ours.own(request, spot)) is not None:
                if presence.withdraw(request.token, mine):
                    # The lock is free, even if nobody can be notified.
                    with suppress(OSError):
                        presence.wake_next(spot, mine)
                    return True
                # It is gone, or another thread has just renamed its file.
            return False

    def downgrade(self, request: LockRequest, deadline: float = math.inf) -> bool:
        """See `distlock.backends.optional.Reads`."""
        with self._call_for_ours() as presence:
            if presence is None:
                return False
            spot = presence.queues.spot(request.key)
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
                request, presence.queues.spot(request.key), number, self._patience
            )
            presence.insist(request.token)
            return Acquired(lifted) if lifted is not None else None

    def locked(self, key: str) -> bool:
        if self.unmade():
            return False
        with self._call() as presence:
            return presence.inspector.locked(key, self._patience)

    def unmade(self) -> Finding | None:
        """See `distlock.backends.inspectable.MadeByUse`."""
        return unmade(self._directory) if self._presence is None else None

    def examine(self) -> Iterator[Finding]:
        if self.unmade():
            health.refuse_unusable_directory(self._directory)
            return iter(())
        with self._call():
            return iter(list(examine(self._directory.root)))

    @property
    def process(self) -> str:
        """The name of its contender in the files; "" before the first call."""
        presence = self._presence
        return name_of(presence.contender) if presence is not None else ""

    def inspect(self, key: str, deadline: float = math.inf) -> KeyState:
        """See `distlock.backends.inspectable.Inspectable`.

        The first in line counts as the holder, also while it has not taken the lock yet.
        """
        if self.unmade():
            return KeyState()
        with self._call() as presence:
            return presence.inspector.key_state(key, self._left(deadline))

    def request_release(self, key: str, deadline: float = math.inf) -> bool:
        """See `distlock.backends.optional.Notifies`."""
        if self.unmade():
            return False
        with self._call() as presence:
            return presence.inspector.request_release(key, self._left(deadline))

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        if self.unmade():
            return False
        with self._call() as presence:
            if not presence.inspector.break_hold(key, number, self._left(deadline)):
                return False
            with suppress(OSError):
                # It is broken, even if nobody can be notified.
                presence.wake_front(presence.queues.spot(key))
            return True

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
        """See `distlock.backends.inspectable.Inspectable`. It ends with its process, too."""
        with self._call() as presence:
            if self._sink is not None and (presence.ours.is_broken() or presence.release_requests.has_news()):
                # Holds without a lease have no renewals that would find it out.
                self._sink.missed_notifications()
            return presence.status.say((host, pid), rows, gone, life)

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[SeenProcess]:
        if self.unmade():
            return
        with self._call() as presence:
            speaking = presence.inspector.speaking()
        for contender in speaking:
            with self._call() as presence:
                said = presence.inspector.said_by(contender, before)
            yield from said

    def make_latch(
        self, key: str, total: int, ttl: float, maker: str, deadline: float = math.inf
    ) -> LatchState:
        with self._call() as presence:
            return presence.latches.make(key, total, ttl, maker, self._left(deadline))

    def count_latch_down(
        self, key: str, by: int, part: str, life: str = "", deadline: float = math.inf
    ) -> LatchState | None:
        if self.unmade():
            return None
        with self._call() as presence:
            return presence.latches.count(key, by, part, life, self._left(deadline))

    def delete_latch(self, key: str, life: str = "", deadline: float = math.inf) -> bool:
        if self.unmade():
            return False
        with self._call() as presence:
            return presence.latches.delete(key, life, self._left(deadline))

    def look_at_latches(
        self, keys: Sequence[str], watch: bool = False, deadline: float = math.inf
    ) -> list[LatchState | None]:
        if self.unmade():
            return [None] * len(keys)
        with self._call() as presence:
            look = self._watched if watch else self._latch_state
            return [look(presence, key, deadline) for key in keys]

    def _latch_state(self, presence: Presence, key: str, deadline: float) -> LatchState | None:
        return presence.latches.look(key)

    def _watched(self, presence: Presence, key: str, deadline: float) -> LatchState | None:
        # Listen before anybody can notify us.
        presence.listen(key)
        state = presence.latches.watch(key, presence.contender, self._left(deadline))
        if state is None or not state.left:
            presence.listen_no_more(key)
        return state

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
        """Have *presence*, and no other, closed when this backend is dropped without close()."""
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = None
        if presence is not None:
            self._finalizer = weakref.finalize(self, close_in_thread, presence)
            # At exit the end of the process does the same.
            self._finalizer.atexit = False

    def _call(self) -> PresenceCall:
        return PresenceCall(self._connected, self._directory)

    def _call_for_ours(self) -> CallForOurs:
        return CallForOurs(self._call())

    def _connected(self) -> Presence:
        """Return the presence in the directory that exists now, with a call begun."""
        presence = self._presence
        if presence is not None and presence.begin():
            if presence.current():
                return presence
            presence.end()
        with self._mutex:
            presence = self._presence
            if presence is not None and not presence.current():
                # Our entries went with the directory, and others may have made it again.
                self._presence = None
                presence.desert()
                presence = None
            if presence is None:
                presence = Presence(self._directory, WeakSink(self._sink) if self._sink is not None else None)
                self._presence = presence
                self._kept(presence)
            # It is open, because `close` removes it first, under the same mutex.
            presence.begin()
            return presence

    def _request(self, presence: Presence, request: LockRequest, deadline: float) -> Acquired | Queued | Busy:
        spot = presence.queues.spot(request.key)
        listening = False
        while True:
            line = presence.queues.entries(spot) if request.token in presence.ours.entries else []
            mine = presence.ours.find(request, line)
            if mine is None:
                # It is new, or was deleted while this process was stopped.
                mine, line = presence.join(request, spot, self._left(deadline))
            if mine is None:
                return Busy()
            before = [] if mine.held else presence.queues.before(mine, line)
            if not before:
                taken = mine if mine.held else presence.take(request, spot, mine, self._left(deadline))
                if taken is None:
                    continue
                number = presence.hold(request, spot, taken, self._left(deadline))
                followed = request.mode == READ and presence.queues.followed(line)
                return Acquired(number, followed=followed, other_limit=other_limit(taken, line))
            if not request.wait:
                return self._leave(presence, request, spot, mine)
            pause = presence.remove_unresponsive(
                request, spot, before, self._ack_window, self._left(deadline)
            )
            if not pause:
                continue
            try:
                watched = presence.await_turn(request.key, mine, before)
            except BackendUnavailable:
                self._leave(presence, request, spot, mine)
                raise
            if listening:
                return Queued(min(pause, POLL if watched else POLL_BLIND))
            # Look once more, because those that left before we listened have not notified us.
            listening = True

    def _left(self, deadline: float) -> float:
        """Return how many seconds to wait for a process that writes."""
        return min(self._patience, max(0.0, deadline - clock.now()))

    def _leave(self, presence: Presence, request: LockRequest, spot: Spot, mine: QueueEntry) -> Busy:
        presence.withdraw(request.token, mine)
        presence.wake_front(spot)
        return Busy()
