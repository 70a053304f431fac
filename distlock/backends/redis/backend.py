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

from distlock.backends.base import Acquired, Busy, Capabilities, LockRequest, Queued, Sink, WeakSink
from distlock.backends.protocols import Begun, Sleep
from distlock.backends.redis import scripts
from distlock.backends.redis.address import RedisAddress, redis_py_url
from distlock.backends.redis.calls import ReplicatedCaller, ScriptCaller
from distlock.backends.redis.connection import RedisConnection
from distlock.backends.redis.failures import too_high, unavailable
from distlock.backends.redis.inspection import RedisInspection
from distlock.backends.redis.latches import RedisLatches
from distlock.backends.redis.offloading import Resolver, credentials_for
from distlock.backends.redis.pending_releases import PendingReleases
from distlock.backends.redis.pool import Pool, Stale
from distlock.backends.redis.queue_entries import QueueEntries
from distlock.backends.redis.scripts import (
    BUSY,
    FOREIGN,
    NO_POLL,
    bulk,
    channel_of,
    command,
    encode,
    encode_release,
    hold_key,
    is_free,
)
from distlock.backends.redis.subscription import Subscription
from distlock.backends.redis.task_calls import TaskCalls
from distlock.errors import BackendUnavailable
from distlock.numbers import MOST_SECONDS, check_count, check_seconds

#: The answer of ``raise_fence.lua`` if the number is larger than the server can count.
_TOO_HIGH = 2

#: The largest number of holds that one round trip renews or acknowledges. Other clients wait meanwhile.
_BATCH = 500


class RedisBackend(RedisInspection, RedisLatches):
    """One process's locks in the Redis server at *url*: ``redis://``, ``rediss://`` or ``unix://``.

    Args:
        url: Where the server is.
        io_timeout: The longest time of a call, connecting included, in seconds.
        max_connections: The largest number of connections for calls. The subscription has one more.
        ack_window: Seconds for which a hold lasts that was handed off and not acknowledged.
        fence_ttl: Seconds by which the server's clock may be set back without a fence being given out twice.
        client_name: The name that ``CLIENT LIST`` shows.
        credential_provider: Returns the login for each new connection: see `Credentials`.
        replicas: A grant counts once this many replicas have received it; None: no call waits for replicas.
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
    _read: type[RedisAddress] = RedisAddress
    _make_releases: type[PendingReleases] = PendingReleases

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
        self._io_timeout = check_seconds("io_timeout", io_timeout, most=MOST_SECONDS)
        self.window = check_seconds("ack_window", ack_window, most=MOST_SECONDS)
        self._fence_ttl = check_seconds("fence_ttl", fence_ttl, most=MOST_SECONDS)
        self._max_connections = check_count("max_connections", max_connections)
        self._replicas = None if replicas is None else check_count("replicas", replicas)
        self._address = self._read(url)
        self._client_name = client_name
        self._credential_provider = credential_provider
        self._sink: Sink | None = None
        self._finalizer: weakref.finalize[[], RedisBackend] | None = None
        self._start_anew()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._address.shown}>"

    @staticmethod
    def url_of(given: object, db: int | None = None) -> tuple[str, dict[str, object]]:
        return redis_py_url(given, db)

    def open(self, sink: Sink) -> None:
        self._sink = sink
        self._start_anew()

    def close(self) -> None:
        deadline = self._by(math.inf)
        if self._subscription is not None:
            self._subscription.close(self._io_timeout)
        for request in self._entries.waiting():
            try:
                # If the lock was handed off to a waiter just now, nobody else would release it.
                if self.cancel(request, deadline):
                    self.release(request, deadline)
            except BackendUnavailable:
                # The server drops waiters that do not poll.
                break
        with suppress(BackendUnavailable):
            self.settle(deadline)
            self.withdraw_status(deadline)
        self._tasks.retire()
        self._pool.clear()
        self._start_anew()

    def after_fork(self) -> None:
        self._tasks.forget()
        self._start_anew()

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        deadline = self._by(deadline)
        queue = request.wait and self._entries.may_queue()
        reply = self._request(request, deadline, queue)
        if reply[1] == BUSY and request.wait and not queue:
            # Subscribe before queueing, because a hand-off skips a process without a subscription.
            if self._subscription is not None:
                self._subscription.ensure_started(deadline)
            reply = self._request(request, deadline, True)
        if reply[1] == FOREIGN:
            raise self._caller.find_foreign_keys(request, deadline)
        return self._entries.interpret(request, reply)

    def begin(self, call: MethodType, *arguments: Any) -> Begun | None:
        # A call that waits for replicas needs a thread.
        method = None if self._replicas else _TASK_METHODS.get(call.__func__)
        if method is None:
            return None
        *others, deadline = arguments
        return method(self._tasks, *others, self._by(deadline))

    def _request(self, request: LockRequest, deadline: float, queue: bool) -> list[Any]:
        """Call the script of *request*, and return the reply.

        Repeat the call once if the connection was dead, or if the pending release of the key was lost.
        """
        script = scripts.REQUEST[request.mode]
        # The request has to follow a pending release of the key, or it would find our own hold.
        claimed = self._releases.claim(request.key, deadline)
        for connection, last in ((claimed, False), (None, True)):
            more = bulk(*self._entries.poll(request)) if queue else NO_POLL
            call = encode(script, request, self._caller.about, queue, more)
            request.unanswered += 1
            try:
                reply = self._caller.call_once(script, request, call, deadline, connection)
            except Stale:
                if last:
                    raise
                self._releases.repeat_lost(request.key, deadline)
                continue
            request.unanswered -= 1
            pending = None if connection is None else self._releases.by_key.get(request.key)
            if pending is None or not pending.lost:
                return reply
            self._releases.repeat(pending, deadline)
        raise AssertionError("the second attempt returns or raises")

    def wait(self, parker: Sleep, timeout: float) -> None:
        if self._subscription is None:
            parker.wait(timeout)
        else:
            self._subscription.wait(parker, timeout)

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        deadline = self._by(deadline)
        self._releases.finish(request.key, deadline)
        entry = bulk(self._entries.entry(request))
        (reply,) = self._caller.call(scripts.CANCEL, [request], deadline, entry)
        self._entries.forget(request)
        if not reply[1]:
            self._releases.forget(request)
        return bool(reply[1])

    def renew(self, requests: Sequence[LockRequest]) -> list[bool]:
        answers: list[bool] = []
        for start in range(0, len(requests), _BATCH):
            some = requests[start : start + _BATCH]
            replies = self._caller.call(scripts.RENEW, some, self._by(math.inf))
            answers += [bool(reply[1]) for reply in replies]
            self._note_release_requested(some, replies)
        return answers

    def acknowledge(
        self, handed: Sequence[tuple[LockRequest, int]], deadline: float = math.inf
    ) -> list[bool]:
        answers: list[bool] = []
        for start in range(0, len(handed), _BATCH):
            some = handed[start : start + _BATCH]
            numbers = [bulk(number) for _, number in some]
            requests = [request for request, _ in some]
            replies = self._caller.call(scripts.ACKNOWLEDGE, requests, self._by(deadline), numbers)
            answers += [bool(reply[1]) for reply in replies]
            for request in requests:
                # The request no longer waits, because its hold is acknowledged or lost.
                self._entries.forget(request)
        return answers

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        deadline = self._by(deadline)
        self._entries.forget(request)
        script, call = scripts.RELEASE[request.mode], encode_release(request, self._caller.about)
        try:
            reply = self._caller.call_once(script, request, call, deadline)
        except Stale:
            reply = self._caller.call_once(script, request, call, deadline)
            if not reply[1]:
                # Either the first attempt released the hold, or the hold had been lost before.
                raise
        self._releases.known.add(script)
        self._releases.forget(request)
        return bool(reply[1])

    def post(
        self, request: LockRequest, notify: Callable[[bool | None], None], deadline: float = math.inf
    ) -> None:
        deadline = self._by(deadline)
        self._entries.forget(request)
        stale = False
        try:
            if self._releases.post(request, notify, deadline):
                return
        except Stale:
            stale = True
        if not self.release(request, deadline):
            notify(None if stale else False)

    def settle(self, deadline: float = math.inf) -> bool:
        return self._releases.settle(self._by(deadline))

    def downgrade(self, request: LockRequest, deadline: float = math.inf) -> bool:
        (reply,) = self._caller.call(scripts.DOWNGRADE, [request], self._by(deadline))
        return bool(reply[1])

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        (reply,) = self._caller.call(scripts.RAISE_FENCE, [request], self._by(math.inf), bulk(number))
        if reply[1] == _TOO_HIGH:
            raise too_high(number)
        if not reply[1]:
            return None
        request.number = int(reply[2])
        return Acquired(request.number, request.ttl)

    def locked(self, key: str) -> bool:
        deadline = self._by(math.inf)
        self._releases.finish(key, deadline)
        (reply,) = self._ask([command("GET", hold_key(key))], deadline)
        if not isinstance(reply, bytes | None):
            raise self._caller.drop_connections()
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

    def _start_anew(self) -> None:
        """Take a new process id, and forget connections, subscription and queue entries."""
        self.process = secrets.token_hex(8)
        self._has_published = False
        connect = self._connections()
        self._pool = Pool(self._address, connect, self._max_connections, self._sink)
        common = self._address, self._pool, self.process, self.window, self._fence_ttl
        self._caller = ReplicatedCaller(*common, self._replicas) if self._replicas else ScriptCaller(*common)
        self._releases = self._make_releases(self._caller, self._pool)
        self._entries = QueueEntries(self._address, self._sink, self.window)
        self._subscription = None
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._sink is not None:
            # The subscription's thread must not keep a client alive that was dropped without close().
            sink = WeakSink(self._sink)
            channels = [channel_of(name) for name in self.own_names()]
            self._subscription = Subscription(
                self._address, connect, self._io_timeout, channels, self._entries.receive, sink
            )
            self._finalizer = weakref.finalize(self, self._subscription.dismiss)
            # At exit, the thread ends with the process.
            self._finalizer.atexit = False
        self._entries.subscription = self._subscription
        self._tasks = TaskCalls(self._caller, self._pool, self._releases, self._entries)

    def _connections(self) -> Callable[[], RedisConnection]:
        """Return a function that makes connections, which are not connected yet."""
        resolver = Resolver(self._address.host, self._address.port)
        credentials = credentials_for(self._address, self._credential_provider)
        return partial(RedisConnection, self._address, resolver, credentials, self._client_name)


#: Each method that a task can call without a thread, and the method of `TaskCalls` that begins the call.
_TASK_METHODS: dict[Callable[..., Any], Callable[..., Begun | None]] = {
    getattr(RedisBackend, name): getattr(TaskCalls, name)
    for name in (
        *("request", "cancel", "post", "downgrade", "acknowledge"),
        *("make_latch", "count_latch_down", "delete_latch", "look_at_latches"),
    )
}
