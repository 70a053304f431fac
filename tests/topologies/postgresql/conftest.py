from __future__ import annotations

from collections.abc import Iterator

import pytest

import distlock
from loadtest.postgresql import PostgreSQLServer, own_postgresql


def prepare(url: str) -> None:
    locks = distlock.connect(url)
    locks.namespace.prepare()
    locks.close()


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
