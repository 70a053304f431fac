"""Locks in one Redis server."""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from distlock import clock
from distlock.backends.base import Ask, Busy, Capabilities, Held, Queued, Sink
from distlock.backends.redis import scripts
from distlock.backends.redis.address import Address
from distlock.backends.redis.arguments import written
from distlock.backends.redis.calls import Calls
from distlock.backends.redis.connection import Connection
from distlock.backends.redis.credentials import Credentials
from distlock.backends.redis.failures import unavailable, unending
from distlock.backends.redis.inspection import Inspection
from distlock.backends.redis.listener import Listener
from distlock.backends.redis.pool import Pool, Stale
from distlock.backends.redis.resolver import Resolver
from distlock.backends.redis.scripts import bulk, command, hold_key
from distlock.backends.redis.unanswered import Unanswered
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.numbers import LONG, check_count, check_seconds

#: What the scripts answer.
_HELD, _BUSY, _UNENDING, _FOREIGN = 1, 3, 4, 5
_TOO_HIGH = 2

#: So much of its rest a waiter waits while it is not subscribed, so that there are no hints at all.
_DEAF = 0.1
#: How long after the end of another's hold to ask for it, seconds: spread, because several waiters do, …
_AFTER = (0.005, 0.05)
#: … all those in front, who rest no longer than so many milliseconds.
_IN_FRONT = 1000
#: How many holds are renewed in one round trip.
_BATCH = 500
#: Behind a lock that is free, but whose queue was too long to clear in one call, seconds.
_UNDECIDED = 0.01


class RedisBackend(Inspection):
    """One process's locks in the Redis server at *url*: ``redis://``, ``rediss://`` or ``unix://``.

    *io_timeout* bounds each call as a whole, connecting included. *max_connections* bounds the connections
    for requests; one more listens. *ack_window* is what a hand-over is worth until it is acknowledged.
    *fence_ttl* is how far the server's clock may be set back without a fence being given out twice.
    *client_name* is what ``CLIENT LIST`` shows. *credential_provider* is asked for the login, before each
    connection: see `Credentials`. Times are in seconds.
    """

    capabilities = Capabilities(several_processes=True, lease=True, fence=True, inspect=True)

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
    ) -> None:
        self._io_timeout = check_seconds("io_timeout", io_timeout, most=LONG)
        self._ack_window = check_seconds("ack_window", ack_window, most=LONG)
        self._fence_ttl = check_seconds("fence_ttl", fence_ttl, most=LONG)
        self._max_connections = check_count("max_connections", max_connections)
        self._address = Address(url)
        self._client_name = client_name
        self._credential_provider = credential_provider
        if credential_provider is not None and self._address.login:
            raise ConfigurationError(
                f"The Redis server at {self._address.shown} has a user or a password in its URL, and a "
                "credential_provider. Take one of them out."
            )
        self._sink: Sink | None = None
        self._begin()

    def __repr__(self) -> str:
        return f"<RedisBackend {self._address.shown}>"

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
        for ask in list(self._queued.values()):
            try:
                # A waiter that was handed the lock as it left is not there any more to give it back.
                if self.cancel(ask, deadline):
                    self.release(ask, deadline)
            except BackendUnavailable:
                # Waiters that do not ask are forgotten by themselves.
                break
        with suppress(BackendUnavailable):
            self.settle(deadline)
            self.fall_silent(deadline)
        self._pool.clear()
        self._begin()

    def after_fork(self) -> None:
        self._begin()

    def request(self, ask: Ask, deadline: float = math.inf) -> Held | Queued | Busy:
        deadline = self._by(deadline)
        listener = self._listener
        queue = ask.wait and listener is not None and listener.tried.is_set()
        reply = self._request(ask, deadline, queue)
        if ask.wait and not queue and reply[1] == _BUSY:
            # A process that cannot hear yet does not queue: it would be passed over.
            if listener is not None:
                listener.start(deadline)
            reply = self._request(ask, deadline, True)
        answer = reply[1]
        if answer == _HELD:
            self._unqueue(ask)
            return Held(int(reply[2]), ask.ttl)
        if answer == _BUSY:
            return Busy()
        if answer == _UNENDING:
            raise unending(self._address, hold_key(ask.key), ask.ttl)
        if answer == _FOREIGN:
            raise self._calls.foreign(ask, deadline)
        self._queued[ask.key] = ask
        return Queued(_poll(int(reply[2]), int(reply[3]), listener is not None and listener.subscribed))

    def _request(self, ask: Ask, deadline: float, queue: bool) -> list[Any]:
        # Behind a release of the key that is on its way, or it would find the lock taken by ourselves.
        behind = self._unanswered.connection(ask.key, deadline)
        try:
            (reply,) = self._calls.attempt(scripts.REQUEST, [ask], deadline, queue, connection=behind)
            if behind is None or not self._unanswered.again(ask.key, deadline):
                return reply
        except Stale:
            self._unanswered.again(ask.key, deadline)
        (reply,) = self._calls.attempt(scripts.REQUEST, [ask], deadline, queue)
        return reply

    def cancel(self, ask: Ask, deadline: float = math.inf) -> bool:
        self._unqueue(ask)
        (reply,) = self._calls.call(scripts.CANCEL, [ask], self._by(deadline))
        if not reply[1]:
            self._unanswered.forget(ask)
        return bool(reply[1])

    def renew(self, asks: Sequence[Ask]) -> list[bool]:
        answers: list[bool] = []
        # A script that runs keeps everybody else waiting, and so does a batch of them.
        for start in range(0, len(asks), _BATCH):
            replies = self._calls.call(scripts.RENEW, asks[start : start + _BATCH], self._by(math.inf))
            answers += [bool(reply[1]) for reply in replies]
        return answers

    def release(self, ask: Ask, deadline: float = math.inf) -> bool:
        deadline = self._by(deadline)
        self._unqueue(ask)
        try:
            (reply,) = self._calls.attempt(scripts.RELEASE, [ask], deadline)
        except Stale:
            (reply,) = self._calls.attempt(scripts.RELEASE, [ask], deadline)
            if not reply[1]:
                # Whether the first attempt did it, or the hold had been lost before, nobody knows.
                raise
        self._unanswered.known = True
        self._unanswered.forget(ask)
        return bool(reply[1])

    def post(self, ask: Ask, told: Callable[[bool | None], None], deadline: float = math.inf) -> None:
        deadline = self._by(deadline)
        self._unqueue(ask)
        unknown = None
        try:
            if self._unanswered.post(ask, told, deadline):
                return
        except Stale as error:
            unknown = error
        if not self.release(ask, deadline):
            told(False if unknown is None else None)

    def settle(self, deadline: float = math.inf) -> bool:
        return self._unanswered.settle(self._by(deadline))

    def raise_floor(self, ask: Ask, number: int) -> Held | None:
        (reply,) = self._calls.call(scripts.RAISE_FLOOR, [ask], self._by(math.inf), more=bulk(number))
        if reply[1] == _TOO_HIGH:
            raise ConfigurationError(
                f"A database has seen the fence {number}, and Redis counts to 2**52: another lock service "
                "gave it out. Raise ERA (era= of connect), on all servers: numbers begin anew."
            )
        return Held(int(reply[2]), ask.ttl) if reply[1] else None

    def locked(self, key: str) -> bool:
        deadline = self._by(math.inf)
        self._unanswered.finish(key, deadline)
        (reply,) = self._ask([command("EXISTS", hold_key(key))], deadline)
        if not isinstance(reply, int):
            raise self._calls.not_asked()
        return bool(reply)

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
        resolver = Resolver(self._address.host, self._address.port)
        provider = self._credential_provider
        credentials = None if provider is None else Credentials(provider)
        make = partial(Connection, self._address, resolver, credentials, self._client_name)
        self._pool = Pool(self._address, make, self._max_connections, self._sink)
        self._calls = Calls(self._address, self._pool, self.process, self._ack_window, self._fence_ttl)
        self._unanswered = Unanswered(self._calls, self._pool)
        self._queued: dict[str, Ask] = {}
        self._listener = None
        if self._sink is not None:
            channel = f"dl:1:ch:{self.process}"
            self._listener = Listener(self._address, make, self._io_timeout, channel, self._sink)

    def _by(self, deadline: float) -> float:
        """The end of a call that begins now and may last until *deadline*."""
        return min(deadline, clock.now() + self._io_timeout)

    def _unqueue(self, ask: Ask) -> None:
        if not self._queued:
            return
        queued = self._queued.get(ask.key)
        # What is given up late may not take its successor along.
        if queued is not None and queued.token == ask.token:
            self._queued.pop(ask.key, None)


def _poll(pttl: int, rest: int, subscribed: bool) -> float:
    """When to ask again, seconds, behind a hold that lives for *pttl* more milliseconds.

    *rest*: after how many milliseconds a waiter at our place has to, if it hears of its turn.
    """
    if pttl == -2:
        return _UNDECIDED
    poll = rest / 1000 if subscribed else rest / 1000 * _DEAF
    spread = random.random()  # noqa: S311 - spreads clients, hides nothing
    if pttl >= 0 and rest <= _IN_FRONT:
        low, high = _AFTER
        after = pttl / 1000 + low + (high - low) * spread
        if after < poll:
            return after
    return poll * (0.75 + 0.25 * spread)
