from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import distlock
from distlock.testing.waits import PATIENCE
from loadtest.servers.databases import PostgreSQLServer, own_postgresql
from tests.topologies.postgresql.asking import Connect, prepare


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a database that is ready for locks."""
    with own_postgresql() as running:
        prepare(running.url)
        yield running.url


@pytest.fixture
def own_server() -> Iterator[PostgreSQLServer]:
    """One that a test may stop."""
    with own_postgresql() as running:
        prepare(running.url)
        yield running


@pytest.fixture
def connect() -> Iterator[Connect]:
    made: list[distlock.Locks] = []

    def connect(url: str, **more: object) -> distlock.Locks:
        made.append(distlock.connect(url, prefix="t", **{"timeout": PATIENCE, "ttl": 60.0, **more}))  # type: ignore[arg-type]
        return made[-1]

    yield connect
    for one in made:
        one.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool
