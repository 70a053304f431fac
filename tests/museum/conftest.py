from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.redis_server import running


@pytest.fixture(scope="session")
def museum_redis() -> Iterator[str]:
    """The URL of a server that nobody else uses: the exhibits leave behind what they forget."""
    for server in running():
        yield server.url
