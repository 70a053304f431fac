"""Five Redis servers that know nothing of each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from tests.redis_server import RedisServer, running


class Five(list[RedisServer]):
    @property
    def url(self) -> str:
        return url_of([server.port for server in self])


def url_of(ports: Sequence[int]) -> str:
    return f"redlock://{','.join(f'127.0.0.1:{port}' for port in ports)}/0"


@contextmanager
def started() -> Iterator[Five]:
    with ExitStack() as stack:
        yield Five(stack.enter_context(contextmanager(running)()) for _ in range(5))


@pytest.fixture(scope="session")
def five() -> Iterator[Five]:
    """For all tests that leave them as they found them."""
    with started() as servers:
        yield servers


@pytest.fixture
def own_five() -> Iterator[Five]:
    """Those that a test may stop, wipe and kill."""
    with started() as servers:
        yield servers
