"""What the tests of this folder ask with: one backend, as one process has it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from distlock.backends.base import Ask, Held, Queued
from distlock.backends.zookeeper import ZooKeeperBackend
from distlock.backends.zookeeper.line import Line
from distlock.testing.sink import RecordingSink
from tests.redis_server import eventually

#: A lifetime that no test outlives, seconds.
LONG = 60.0


def ask(key: str = "", ttl: float = LONG, wait: bool = True, span: int = 64) -> Ask:
    return Ask(key or some_key(), secrets.token_hex(16), ttl, span, wait)


def some_key() -> str:
    return f"test:product_{secrets.token_hex(4)}"


class Contender(ZooKeeperBackend):
    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.sink = RecordingSink()
        self.open(self.sink)

    def hold(self, ask: Ask) -> Held:
        answer = self.request(ask)
        assert isinstance(answer, Held), f"expected Held, got {answer}"
        return answer

    def queue(self, ask: Ask) -> Queued:
        answer = self.request(ask)
        assert isinstance(answer, Queued), f"expected Queued, got {answer}"
        return answer

    def until_held(self, ask: Ask) -> Held:
        """Ask as an engine does that gets no hints."""
        eventually(lambda: isinstance(self.request(ask), Held), "the lock is ours")
        return self.hold(ask)

    def line(self, ttl: float = LONG) -> Line:
        return self._line(ttl)

    def connect(self, ttl: float = LONG) -> None:
        line = self.line(ttl)
        line.session.connect(self._deadline())

    def expire(self, server_hosts: str, ttl: float = LONG) -> None:
        """Have the server end our session, as if we had not been heard of for too long."""
        wire = self.line(ttl).session.wire
        before = wire.client_id

        def ended() -> bool:
            if wire.client_id == before:
                # Ours may take the session back before this one has closed it.
                twin = KazooClient(server_hosts, client_id=before)
                twin.start(LONG)
                twin.stop()
                twin.close()
            return bool(wire.client_id != before)

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
