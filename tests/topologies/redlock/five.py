"""Five Redis servers that know nothing of each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from tests.redis_server import RedisServer
from tests.redis_server import started as running_server
from tests.shifted_clock import ShiftedRedis


class Five(list[RedisServer]):
    @property
    def url(self) -> str:
        return url_of([server.port for server in self])


def url_of(ports: Sequence[int]) -> str:
    return f"redlock://{','.join(f'127.0.0.1:{port}' for port in ports)}/0"


@contextmanager
def started(shifted: int = 0) -> Iterator[Five]:
    """*shifted*: how many of them, the first ones, have a clock that the test may set."""
    with ExitStack() as stack:
        servers: list[RedisServer] = [ShiftedRedis() for _ in range(shifted)]
        servers += [RedisServer() for _ in range(5 - shifted)]
        yield Five(stack.enter_context(contextmanager(running_server)(server)) for server in servers)


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
