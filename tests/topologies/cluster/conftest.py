from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.servers.redis_cluster import RedisCluster
from tests.topologies.cluster.contender import contender

__all__ = ["contender"]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """One for all tests that leave it as they found it."""
    with RedisCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """One that the test may break."""
    with RedisCluster(tmp_path) as running:
        yield running
