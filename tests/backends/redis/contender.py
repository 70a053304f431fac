"""What the tests of this folder ask with: one backend, as one process has it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from distlock.backends.base import Acquired, LockRequest, Queued
from distlock.testing.protocol_fixtures import RecordingSink
from tests.backend_class import backend_class
from tests.redis_server import eventually

RedisBackend = backend_class("redis://localhost")

#: A lifetime that no test outlives, seconds.
LONG = 60.0


def ask(key: str = "", ttl: float = LONG, wait: bool = True, span: int = 1) -> LockRequest:
    return LockRequest(key or some_key(), secrets.token_hex(16), ttl, span, wait)


def some_key() -> str:
    return f"test:product_{secrets.token_hex(4)}"


class Contender(RedisBackend):
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

    def poll(self, ask: LockRequest) -> Acquired:
        """Ask as an engine does that gets no hints."""
        answers: list[Acquired] = []

        def held() -> bool:
            answer = self.request(ask)
            if isinstance(answer, Acquired):
                answers.append(answer)
            return bool(answers)

        eventually(held, "the lock is ours")
        return answers[0]


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
