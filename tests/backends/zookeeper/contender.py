"""What the tests of this folder ask with: one backend, as one process has it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from distlock.backends.base import PERMIT, READ, Acquired, LockRequest, Queued
from distlock.testing.protocol_fixtures import RecordingSink
from tests.backend_class import backend_class
from tests.redis_server import eventually

ZooKeeperBackend = backend_class("zookeeper://localhost")

#: A lifetime that no test outlives, seconds.
LONG = 60.0
#: A try that may come to nothing takes no longer, seconds.
SHORT = 5.0


def ask(key: str = "", ttl: float = LONG, wait: bool = True, span: int = 64) -> LockRequest:
    return LockRequest(key or some_key(), secrets.token_hex(16), ttl, span, wait)


def reader(key: str, **more: Any) -> LockRequest:
    return replace(ask(key, **more), mode=READ)


def permit(key: str, limit: int, permits: int = 1, **more: Any) -> LockRequest:
    return replace(ask(key, **more), mode=PERMIT, limit=limit, permits=permits)


def some_key() -> str:
    return f"test:product_{secrets.token_hex(4)}"


class Contender(ZooKeeperBackend):
    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.sink = RecordingSink()
        self.open(self.sink)

    def hold(self, ask: LockRequest) -> Acquired:
        answer = self.request(ask)
        assert isinstance(answer, Acquired), f"expected Held, got {answer}"
        return answer

    def queue(self, ask: LockRequest) -> Queued:
        answer = self.request(ask)
        assert isinstance(answer, Queued), f"expected Queued, got {answer}"
        return answer

    def until_held(self, ask: LockRequest) -> Acquired:
        """Ask as an engine does that gets no hints."""
        eventually(lambda: isinstance(self.request(ask), Acquired), "the lock is ours")
        return self.hold(ask)

    def line(self, ttl: float = LONG) -> Any:
        return self._contenders(ttl)

    def connect(self, ttl: float = LONG) -> None:
        line = self.line(ttl)
        line.session.connect(self._deadline())

    def expire(self, server_hosts: str, ttl: float = LONG) -> None:
        """Have the server end our session, as if we had not been heard of for too long."""
        take_over(self.line(ttl).session.client, server_hosts)


def take_over(wire: Any, server_hosts: str) -> None:
    """Take over the session of the client *wire*, and close it."""
    before = wire.client_id

    def ended() -> bool:
        # `client_id` is None while the connection is away, also where the session lives on.
        if wire.session_id == before[0]:
            # Ours may take the session back before this one has closed it, or even seen that it has it.
            twin = KazooClient(server_hosts, client_id=before, connection_retry={"max_tries": -1})
            with suppress(KazooTimeoutError):
                twin.start(SHORT)
            twin.stop()
            twin.close()
        return bool(wire.session_id != before[0])

    eventually(ended, "the session is over")


MakeContender = Callable[..., Contender]


@pytest.fixture
def contender() -> Iterator[MakeContender]:
    made: list[Contender] = []

    def make(url: str, **options: Any) -> Contender:
        made.append(Contender(url, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
