"""Whatever callers do in whatever order: the scripts answer as the memory backend, which is the model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distlock.testing.protocol_fixtures import LONG
from tests.backend_class import backend_class
from tests.backends.as_memory import Both
from tests.redis_server import RedisServer

RedisBackend = backend_class("redis://localhost")


@pytest.fixture
def both(redis_server: RedisServer) -> Iterator[Both]:
    both = Both(lambda: RedisBackend(redis_server.url, ack_window=LONG), clients=5, one_waits=True)
    yield both
    both.close()


@pytest.mark.parametrize("permits", [False, True], ids=["readers", "permits"])
@pytest.mark.parametrize("seed", range(10))
def test_it_answers_as_its_model(both: Both, seed: int, permits: bool) -> None:
    both.play(seed, permits)
