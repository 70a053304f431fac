"""Three servers and three sentinels for a test, which it may kill, stop and fail over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from loadtest.servers.redis_servers import WatchedRedis
from tests.redis_server import PATIENCE


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calm]:
    """For tests that leave it as they found it."""
    yield from running(tmp_path_factory.mktemp("sentinel"))


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Calm]:
    yield from running(tmp_path)


class Calm(WatchedRedis):
    """No server is taken for dead because the machine is busy: only after `kill_primary` or `freeze_primary`.

    Of a replica that lost its primary ten times as long ago as that none is made.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, down_after=60_000)

    def kill_primary(self) -> None:
        self.servers[self.primary()].kill()
        self.notice(1000)

    def freeze_primary(self) -> None:
        self.servers[self.primary()].freeze()
        self.notice(1000)


def running(directory: Path) -> Iterator[Calm]:
    one = Calm(directory)
    try:
        yield one
    finally:
        one.stop()


def client(port: int) -> redis.Redis:
    """To look into one of its servers, or sentinels."""
    return redis.Redis(port=port, socket_timeout=PATIENCE)
