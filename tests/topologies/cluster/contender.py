"""What the tests of this folder ask with: one backend, as one process has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from distlock.backends.base import Acquired, LockRequest, Queued
from distlock.testing.protocol_fixtures import RecordingSink
from tests.backend_class import backend_class
from tests.backends.redis.contender import ask as ask
from tests.backends.redis.contender import some_key as some_key
from tests.redis_server import eventually

ClusterBackend = backend_class("redis+cluster://localhost")


class Contender(ClusterBackend):
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
        answers: list[object] = []

        def held() -> bool:
            answers.append(self.request(ask))
            return isinstance(answers[-1], Acquired)

        eventually(held, "the lock is ours")
        assert isinstance(answers[-1], Acquired)
        return answers[-1]


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
