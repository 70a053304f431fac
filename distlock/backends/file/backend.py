"""Locks in a directory of one host."""

from __future__ import annotations

import logging
import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from distlock import clock
from distlock.backends.base import READ, Acquired, Busy, Capabilities, LockRequest, Queued, Sink, WeakSink
from distlock.backends.file.contender import Presence
from distlock.backends.file.directory import Directory
from distlock.backends.file.entries import other_limit, spot_of
from distlock.backends.file.queues import HIGHEST_FLOOR
from distlock.backends.file.record_locks import name_of
from distlock.backends.file.trusted_directories import refuse_unusable
from distlock.backends.inspectable import Finding, KeyState, SeenProcess, StatusRow
from distlock.backends.latches import LatchState
from distlock.errors import BackendUnavailable, ConfigurationError, LockError
from distlock.numbers import check_seconds
from distlock.signal_safety import backend_thread

T = TypeVar("T")
logger = logging.getLogger("distlock")

#: Seconds between polls, in case a notification is lost or a process is stopped.
POLL = 1.0

#: Seconds between polls if a contender before us is in another PID namespace, so that its death can't be
#: watched.
POLL_BLIND = 0.25


class FileBackend:
    """Locks in the directory that *url* names: ``file:///var/lib/shop/locks``.

    Args:
        url: The directory. The first lock makes it if it is missing.
        busy_timeout: Seconds that a call waits for another writer, which may have been stopped.
        ack_window: Seconds that a process has to take a lock that was handed off to it.

    Raises:
        ConfigurationError: *url* names no local directory, or a number of seconds is out of range.
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

    def __init__(self, url: str, *, busy_timeout: float = 2.0, ack_window: float = 0.5) -> None:
        self._patience = check_seconds("busy_timeout", busy_timeout, most=60)
        self._ack_window = check_seconds("ack_window", ack_window, most=60)
        self._directory = Directory(url)
        self._weak_sink = WeakSink()
        self._presence: Presence | None = None
        self._finalizer: weakref.finalize[[Presence], FileBackend] | None = None
        self._mutex = threading.Lock()
        _backends.add(self)

    @staticmethod
    def refuse_unusable(url: str) -> None:
        """See `distlock.backends.protocols.LooksAhead`."""
        refuse_unusable(Directory(url))

    def open(self, sink: Sink) -> None:
        self._sink = sink  # Keeps the sink alive.
        self._weak_sink = WeakSink(sink)

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        return self._during(lambda presence: self._request(presence, request, deadline))

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return self._about_ours(lambda presence: self._cancel(presence, request, deadline), False)

    def renew(self, requests: Sequence[LockRequest]) -> list[bool]:
        return self._about_ours(lambda presence: self._renew(presence, requests), [False] * len(requests))

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return self._about_ours(lambda presence: presence.release(request), False)

    def downgrade(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return self._about_ours(lambda presence: presence.downgrade(request, self._left(deadline)), False)

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        return self._during(lambda presence: self._raise_fence(presence, request, number))

    def locked(self, key: str) -> bool:
        return self._if_made(lambda presence: presence.inspector.locked(key, self._patience), False)

    def unmade(self) -> Finding | None:
        """See `distlock.backends.inspectable.MadeByUse`."""
        return self._directory.unmade() if self._presence is None else None

    def examine(self) -> Iterator[Finding]:
        if self.unmade():
            refuse_unusable(self._directory)
            return iter(())
        return self._during(lambda _: iter(list(self._directory.examine())))

    @property
    def process(self) -> str:
        """The name of our contender in the files; "" before the first call."""
        presence = self._presence
        return name_of(presence.contender) if presence is not None else ""

    def inspect(self, key: str, deadline: float = math.inf) -> KeyState:
        """See `distlock.backends.inspectable.Inspectable`.

        The first contender counts as the holder, even before it has taken the lock.
        """
        return self._if_made(
            lambda presence: presence.inspector.key_state(key, self._left(deadline)), KeyState()
        )

    def request_release(self, key: str, deadline: float = math.inf) -> bool:
        return self._if_made(
            lambda presence: presence.inspector.request_release(key, self._left(deadline)), False
        )

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        return self._if_made(lambda presence: presence.break_hold(key, number, self._left(deadline)), False)

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
        """See `distlock.backends.inspectable.Announces`. The status also ends with this process."""
        return self._during(lambda presence: presence.publish((host, pid), rows, gone, life))

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[SeenProcess]:
        publishers: list[int] = self._if_made(lambda presence: presence.inspector.publishers(), [])
        for contender in publishers:
            yield from self._during(partial(_said_by, contender, before))

    def make_latch(
        self, key: str, total: int, ttl: float, maker: str, deadline: float = math.inf
    ) -> LatchState:
        return self._during(
            lambda presence: presence.latches.make(key, total, ttl, maker, self._left(deadline))
        )

    def count_latch_down(
        self, key: str, by: int, part: str, life: str = "", deadline: float = math.inf
    ) -> LatchState | None:
        return self._if_made(
            lambda presence: presence.latches.count(key, by, part, life, self._left(deadline)), None
        )

    def delete_latch(self, key: str, life: str = "", deadline: float = math.inf) -> bool:
        return self._if_made(lambda presence: presence.latches.delete(key, life, self._left(deadline)), False)

    def look_at_latches(
        self, keys: Sequence[str], watch: bool = False, deadline: float = math.inf
    ) -> list[LatchState | None]:
        def look(presence: Presence) -> list[LatchState | None]:
            if watch:
                return [presence.watch_latch(key, self._left(deadline)) for key in keys]
            return [presence.latches.look(key) for key in keys]

        return self._if_made(look, [None] * len(keys))

    def close(self) -> None:
        with self._mutex:
            presence, self._presence = self._presence, None
        if presence is not None:
            self._set_finalizer(None)
            _keep_unless(presence.close(), presence)
        _close_unclosed()

    def after_fork(self) -> None:
        self._mutex = threading.Lock()
        presence, self._presence = self._presence, None
        self._set_finalizer(None)
        if presence is not None:
            presence.abandon()

    def _set_finalizer(self, presence: Presence | None) -> None:
        """Have *presence*, and no earlier one, closed when this backend is dropped without close()."""
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = None
        if presence is not None:
            self._finalizer = weakref.finalize(self, _close_in_thread, presence)
            # At exit, the end of the process releases everything.
            self._finalizer.atexit = False

    def _during(self, call: Callable[[Presence], T]) -> T:
        """Call *call* with the presence, which is made if necessary. Return the result.

        If the client is closed meanwhile, the descriptors stay open until *call* is over.
        """
        under_way = threading.Lock()
        with under_way:
            return self._finish_call(self._begin_call(under_way), call, under_way)

    def _if_made(self, call: Callable[[Presence], T], nothing: T) -> T:
        """As `_during`, but return *nothing*, and make no directory, if nothing was ever locked there."""
        return nothing if self.unmade() else self._during(call)

    def _about_ours(self, call: Callable[[Presence], T], nothing: T) -> T:
        """As `_during`, for calls about our entries. Return *nothing* if the directory can't be used.

        A `ConfigurationError` of *call* becomes `BackendUnavailable`, so that the engine tries again: our
        entries stay while this process lives, and rights that were taken away may be given back.
        """
        under_way = threading.Lock()
        with under_way:
            try:
                presence = self._begin_call(under_way)
            except ConfigurationError:
                return nothing
            try:
                return self._finish_call(presence, call, under_way)
            except ConfigurationError as error:
                raise BackendUnavailable(str(error)) from error

    def _begin_call(self, under_way: threading.Lock) -> Presence:
        if _unclosed:
            _close_unclosed()
        try:
            return self._connect(under_way)
        except OSError as error:
            raise self._directory.explain(error) from error

    def _finish_call(self, presence: Presence, call: Callable[[Presence], T], under_way: threading.Lock) -> T:
        """Return the result of *call*. End the presence's call, which `_begin_call` has begun."""
        try:
            try:
                presence.locks.heal()
                result = call(presence)
            except BaseException:
                # The error of *call* matters more than an error of `end`.
                with suppress(OSError):
                    presence.end(under_way)
                raise
            presence.end(under_way)
            return result
        except OSError as error:
            raise self._directory.explain(error) from error

    def _connect(self, under_way: threading.Lock) -> Presence:
        """Return the presence in the directory that exists now, and begin a call for `_finish_call`."""
        presence = self._presence
        if presence is not None and presence.begin(under_way):
            if presence.current():
                return presence
            presence.end(under_way)
        with self._mutex:
            presence = self._presence
            if presence is not None and not presence.current():
                # The directory was deleted with our entries. Another process may have made it again.
                self._presence = None
                _keep_unless(presence.desert(), presence)
                presence = None
            if presence is None:
                presence = Presence(self._directory, self._weak_sink)
                self._presence = presence
                self._set_finalizer(presence)
            # The presence is open, because `close` removes it under this mutex before closing it.
            presence.begin(under_way)
            return presence

    def _request(self, presence: Presence, request: LockRequest, deadline: float) -> Acquired | Queued | Busy:
        answer = self._attempt(presence, request, deadline)
        presence.refuse_closed(request.token)
        return answer

    def _attempt(self, presence: Presence, request: LockRequest, deadline: float) -> Acquired | Queued | Busy:
        spot = spot_of(request.key)
        listening = False
        while True:
            line = presence.queues.entries(spot) if request.token in presence.ours.entries else []
            mine = presence.ours.find(request, line)
            if mine is None:
                # The request is new, or its entry was deleted while this process was stopped.
                mine, line = presence.join(request, self._left(deadline))
            if mine is None:
                return Busy()
            before = [] if mine.held else presence.queues.before(mine, line)
            if not before:
                taken = mine if mine.held else presence.take(request, mine, self._left(deadline))
                if taken is None:
                    continue
                number = presence.hold(request, taken, self._left(deadline))
                followed = request.mode == READ and presence.queues.followed(line)
                return Acquired(number, followed=followed, other_limit=other_limit(taken, line))
            if not request.wait:
                presence.leave(request, mine)
                return Busy()
            pause = presence.remove_unresponsive(request, before, self._ack_window, self._left(deadline))
            if not pause:
                continue
            try:
                watched = presence.await_turn(request.key, mine, before)
            except BackendUnavailable:
                presence.leave(request, mine)
                raise
            if listening:
                return Queued(min(pause, POLL if watched else POLL_BLIND))
            # Look once more: a contender that left before we listened has not notified us.
            listening = True

    def _cancel(self, presence: Presence, request: LockRequest, deadline: float) -> bool:
        line = presence.queues.entries(spot_of(request.key))
        mine = presence.ours.find(request, line)
        if mine is None:
            presence.drop(request.token)
            return False
        if mine.held or (
            not presence.queues.before(mine, line)
            and presence.take(request, mine, self._left(deadline)) is not None
        ):
            presence.refuse_closed(request.token)
            return True
        presence.leave(request, mine)
        return False

    def _renew(self, presence: Presence, requests: Sequence[LockRequest]) -> list[bool]:
        held = [presence.ours.holds(request, self._patience) for request in requests]
        ours = [request for request, has in zip(requests, held, strict=True) if has]
        for request in presence.release_requests.of(ours):
            self._weak_sink.release_requested(request.key, request.token)
        presence.refuse_closed()
        return held

    def _raise_fence(self, presence: Presence, request: LockRequest, number: int) -> Acquired | None:
        if not presence.ours.holds(request, self._patience):
            return None
        if number > HIGHEST_FLOOR:
            raise ConfigurationError(
                f"A database has seen the fence {number}, and files count to 2**61: another lock service "
                "gave it out. Raise FENCE_EPOCH (epoch= of connect), on all servers: numbers begin anew."
            )
        first = presence.ours.raise_fence(request, number, self._patience)
        presence.refuse_closed(request.token)
        return Acquired(first) if first is not None else None

    def _left(self, deadline: float) -> float:
        """Return how many seconds a call may wait for another writer."""
        return min(self._patience, max(0.0, deadline - clock.now()))


def _said_by(contender: int, before: str, presence: Presence) -> list[SeenProcess]:
    return presence.inspector.said_by(contender, before)


def _close_in_thread(presence: Presence) -> None:
    """Close *presence* in a thread, because the garbage collector may run while our locks are held."""
    try:
        backend_thread("distlock-file-close", presence.close).start()
    except RuntimeError:
        # The process can start no more threads.
        _unclosed.append(presence)


def _keep_unless(is_closed: bool, presence: Presence) -> None:
    if not is_closed:
        _unclosed.append(presence)


def _close_unclosed() -> None:
    """Close what is in `_unclosed`, except for presences with a call that is still under way."""
    for _ in range(len(_unclosed)):
        try:
            presence = _unclosed.popleft()
            _keep_unless(presence.close(), presence)
        except IndexError:
            return  # Another thread has closed it.
        except (OSError, LockError) as error:
            # The caller has nothing to do with what is wrong there.
            logger.debug("A client that was dropped, or closed during a call, could not be closed: %s", error)


#: The presences of dropped backends for which no thread could be started, and those that were closed while a
#: call was under way, which may have been interrupted. The next call or `close` of a backend of this process
#: closes them.
_unclosed: deque[Presence] = deque()
#: All backends of this process. In a forked child, each one forgets the parent's contender.
_backends: weakref.WeakSet[FileBackend] = weakref.WeakSet()


def _forget_after_fork() -> None:
    for backend in list(_backends):
        backend.after_fork()
    while _unclosed:
        _unclosed.popleft().abandon()


os.register_at_fork(after_in_child=_forget_after_fork)
