"""Locks in one Redis server."""

from __future__ import annotations

import math
import secrets
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import MethodType
from typing import Any

from distlock import clock
from distlock.backends.base import Acquired, Busy, Capabilities, LockRequest, Queued, Sink
from distlock.backends.optional import Begun, Sleep
from distlock.backends.redis import scripts
from distlock.backends.redis.address import Address
from distlock.backends.redis.arguments import written
from distlock.backends.redis.awaiting import Awaiting
from distlock.backends.redis.calls import Calls
from distlock.backends.redis.connection import Connection
from distlock.backends.redis.credentials import credentials_for
from distlock.backends.redis.failures import too_high, unavailable
from distlock.backends.redis.inspection import Inspection
from distlock.backends.redis.latches import RedisLatches
from distlock.backends.redis.listener import Listener
from distlock.backends.redis.notifying import Notifying
from distlock.backends.redis.pool import Pool, Stale
from distlock.backends.redis.pushes import Pushes
from distlock.backends.redis.replicas import ConfirmedCalls
from distlock.backends.redis.resolver import Resolver
from distlock.backends.redis.scripts import bulk, channel_of, command, hold_key, is_free, left_by, polled
from distlock.backends.redis.told import BUSY, FOREIGN, Told
from distlock.backends.redis.unanswered import Unanswered
from distlock.backends.weak_sink import WeakSink
from distlock.errors import BackendUnavailable
from distlock.numbers import LONG, check_count, check_seconds

#: What a script answers.
_TOO_HIGH = 2

#: How many holds are renewed in one round trip.
_BATCH = 500


class RedisBackend(Inspection, Notifying, RedisLatches):
    """One process's locks in the Redis server at *url*: ``redis://``, ``rediss://`` or ``unix://``.

    *io_timeout* bounds each call as a whole, connecting included. *max_connections* bounds the connections
    for requests; one more listens. *ack_window* is what a hand-off is worth until it is acknowledged.
    *fence_ttl* is how far the server's clock may be set back without a fence being given out twice.
    *client_name* is what ``CLIENT LIST`` shows. *credential_provider* is asked for the login, before each
    connection: see `Credentials`. A grant counts when *replicas* have heard of it. Times are in seconds.
    """

    capabilities = Capabilities(
        several_processes=True,
        lease=True,
        fence=True,
        inspect=True,
        breaks=True,
        notify=True,
        latch=True,
        read=True,
        permits=True,
    )
    _read: type[Address] = Address
    _releases: type[Unanswered] = Unanswered

    def __init__(
        self,
        url: str,
        *,
        io_timeout: float = 2.0,
        max_connections: int = 64,
        ack_window: float = 0.5,
        fence_ttl: float = 60.0,
        client_name: str = "distlock",
        credential_provider: object = None,
        replicas: int | None = None,
    ) -> None:
        self._io_timeout = check_seconds("io_timeout", io_timeout, most=LONG)
        self.window = check_seconds("ack_window", ack_window, most=LONG)
        self._fence_ttl = check_seconds("fence_ttl", fence_ttl, most=LONG)
        self._max_connections = check_count("max_connections", max_connections)
        self._replicas = None if replicas is None else check_count("replicas", replicas)
        self._address = self._read(url)
        self._client_name = client_name
        self._credential_provider = credential_provider
        self._sink: Sink | None = None
        self._finalizer: weakref.finalize[[], RedisBackend] | None = None
        self._begin()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._address.shown}>"

    @staticmethod
    def written(given: object, db: int | None = None) -> tuple[str, dict[str, object]]:
        return written(given, db)

    def open(self, sink: Sink) -> None:
        self._sink = sink
        self._begin()

    def close(self) -> None:
        deadline = self._by(math.inf)
        if self._listener is not None:
            self._listener.close(self._io_timeout)
        for request in self._pushes.waiting():
            try:
                # A waiter that was handed the lock as it left is not there any more to give it back.
                if self.cancel(request, deadline):
                    self.release(request, deadline)
            except BackendUnavailable:
                # Waiters that do not ask are forgotten by themselves.
                break
        with suppress(BackendUnavailable):
            self.settle(deadline)
            self.fall_silent(deadline)
        self._awaiting.pipelines.retire()
        self._pool.clear()
        self._begin()

    def after_fork(self) -> None:
        self._awaiting.pipelines.forget()
        self._begin()

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        deadline = self._by(deadline)
        listener = self._listener
        queue = request.wait and listener is not None and listener.tried.is_set()
        reply = self._request(request, deadline, queue)
        if request.wait and not queue and reply[1] == BUSY:
            # A process that cannot hear yet does not queue: it would be passed over.
            if listener is not None:
                listener.start(deadline)
            reply = self._request(request, deadline, True)
        if reply[1] == FOREIGN:
            raise self._calls.foreign(request, deadline)
        return self._told.by(reply, request)

    def begin(self, call: MethodType, *arguments: Any) -> Begun | None:
        # To wait for replicas takes a thread.
        way = None if self._replicas else _WAYS.get(call.__func__)
        if way is None:
            return None
        *said, deadline = arguments
        return way(self._awaiting, *said, self._by(deadline))

    def _request(self, request: LockRequest, deadline: float, queue: bool) -> list[Any]:
        # Behind a release of the key that is on its way, or it would find the lock taken by ourselves.
        behind = self._unanswered.connection(request.key, deadline)
        try:
            reply = self._attempt(request, deadline, queue, behind)
            if behind is None or not self._unanswered.again(request.key, deadline):
                return reply
        except Stale:
            self._unanswered.again(request.key, deadline)
        # What the first attempt has done is not known.
        return self._attempt(request, deadline, queue)

    def _attempt(
        self, request: LockRequest, deadline: float, queue: bool, behind: Connection | None = None
    ) -> list[Any]:
        poll = polled(*self._pushes.poll(request)) if queue else polled()
        request.unanswered += 1
        reply = self._calls.one(scripts.REQUEST[request.mode], request, deadline, queue, poll, behind)
        request.unanswered -= 1
        return reply

    def wait(self, parker: Sleep, timeout: float) -> None:
        if self._listener is None:
            parker.wait(timeout)
        else:
            self._listener.wait(parker, timeout)

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        deadline = self._by(deadline)
        self._unanswered.finish(request.key, deadline)
        entry = bulk(self._pushes.entry(request))
        (reply,) = self._calls.call(scripts.CANCEL, [request], deadline, more=entry)
        self._pushes.forget(request)
        if not reply[1]:
            self._unanswered.forget(request)
        return bool(reply[1])

    def renew(self, requests: Sequence[LockRequest]) -> list[bool]:
        answers: list[bool] = []
        # A script that runs keeps everybody else waiting, and so does a batch of them.
        for start in range(0, len(requests), _BATCH):
            replies = self._calls.call(scripts.RENEW, requests[start : start + _BATCH], self._by(math.inf))
            answers += [bool(reply[1]) for reply in replies]
            self.tell_wanted(requests[start : start + _BATCH], replies)
        return answers

    def acknowledge(
        self, handed: Sequence[tuple[LockRequest, int]], deadline: float = math.inf
    ) -> list[bool]:
        answers: list[bool] = []
        for start in range(0, len(handed), _BATCH):
            some = handed[start : start + _BATCH]
            numbers = [bulk(number) for _, number in some]
            replies = self._calls.call(
                scripts.ACKNOWLEDGE, [request for request, _ in some], self._by(deadline), more=numbers
            )
            answers += [bool(reply[1]) for reply in replies]
            for request, _ in some:
                # Ours or lost: either way it does not wait any more.
                self._pushes.forget(request)
        return answers

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        deadline = self._by(deadline)
        self._pushes.forget(request)
        try:
            reply = self._calls.one(scripts.RELEASE[request.mode], request, deadline, more=left_by(request))
        except Stale:
            reply = self._calls.one(scripts.RELEASE[request.mode], request, deadline, more=left_by(request))
            if not reply[1]:
                # Whether the first attempt did it, or the hold had been lost before, nobody knows.
                raise
        self._unanswered.known.add(scripts.RELEASE[request.mode])
        self._unanswered.forget(request)
        return bool(reply[1])

    def post(
        self, request: LockRequest, told: Callable[[bool | None], None], deadline: float = math.inf
    ) -> None:
        deadline = self._by(deadline)
        self._pushes.forget(request)
        unknown = None
        try:
            if self._unanswered.post(request, told, deadline):
                return
        except Stale as error:
            unknown = error
        if not self.release(request, deadline):
            told(False if unknown is None else None)

    def settle(self, deadline: float = math.inf) -> bool:
        return self._unanswered.settle(self._by(deadline))

    def downgrade(self, request: LockRequest, deadline: float = math.inf) -> bool:
        (reply,) = self._calls.call(scripts.DOWNGRADE, [request], self._by(deadline))
        return bool(reply[1])

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        (reply,) = self._calls.call(scripts.RAISE_FLOOR, [request], self._by(math.inf), more=bulk(number))
        if reply[1] == _TOO_HIGH:
            raise too_high(number)
        if not reply[1]:
            return None
        request.number = int(reply[2])
        return Acquired(request.number, request.ttl)

    def locked(self, key: str) -> bool:
        deadline = self._by(math.inf)
        self._unanswered.finish(key, deadline)
        (reply,) = self._ask([command("GET", hold_key(key))], deadline)
        if not isinstance(reply, bytes | None):
            raise self._calls.not_asked()
        return not is_free(reply)

    def _ask(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        try:
            replies = self._pool.exchange(commands, deadline)
        except Stale:
            replies = self._pool.exchange(commands, deadline)
        for reply in replies:
            if isinstance(reply, Exception):
                raise unavailable(self._address, reply)
        return replies

    def _begin(self) -> None:
        """Start from nothing: a new contender, without connections, thread or queue."""
        self.process = secrets.token_hex(8)
        self._has_spoken = False
        make = self._connections()
        self._pool = Pool(self._address, make, self._max_connections, self._sink)
        of_each = self._address, self._pool, self.process, self.window, self._fence_ttl
        self._calls = ConfirmedCalls(*of_each, self._replicas) if self._replicas else Calls(*of_each)
        self._unanswered = self._releases(self._calls, self._pool)
        self._listener = None
        # The listener's thread may not keep a client alive that was dropped without a close.
        self._pushes = Pushes(self._sink, self.window)
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._sink is not None:
            sink = WeakSink(self._sink)
            channels, heard = [channel_of(name) for name in self.own_names()], self._pushes.heard
            self._listener = Listener(self._address, make, self._io_timeout, channels, heard, sink)
            self._finalizer = weakref.finalize(self, self._listener.dismiss)
            # At the end of the process the thread ends anyway.
            self._finalizer.atexit = False
        self._told = Told(self._address, self._pushes, self._listener)
        known = self._calls, self._pool, self._unanswered, self._pushes
        self._awaiting = Awaiting(*known, self._listener, self._told)

    def _connections(self) -> Callable[[], Connection]:
        """Makes them; they connect when they are told to."""
        resolver = Resolver(self._address.host, self._address.port)
        credentials = credentials_for(self._address, self._credential_provider)
        return partial(Connection, self._address, resolver, credentials, self._client_name)

    def _by(self, deadline: float) -> float:
        """The end of a call that begins now and may last until *deadline*."""
        return min(deadline, clock.now() + self._io_timeout)


#: How event loops begin a method.
_WAYS: dict[Callable[..., Any], Callable[..., Begun | None]] = {
    getattr(RedisBackend, name): getattr(Awaiting, name)
    for name in (
        *("request", "cancel", "post", "downgrade", "acknowledge"),
        *("make_latch", "count_latch_down", "delete_latch", "look_at_latches"),
    )
}
