"""Three servers and three sentinels for a test, which it may kill, stop and fail over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from loadtest.sentinels import Watched
from tests.redis_server import PATIENCE


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """For tests that leave it as they found it."""
    yield from running(tmp_path_factory.mktemp("sentinel"))


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    yield from running(tmp_path)


def running(directory: Path) -> Iterator[Watched]:
    one = Watched(directory)
    try:
        yield one
    finally:
        one.stop()


def client(port: int) -> redis.Redis:
    """To look into one of its servers, or sentinels."""
    return redis.Redis(port=port, socket_timeout=PATIENCE)
