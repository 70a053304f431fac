"""The whole kit, with exactly the rights that the page lists."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.backends.redis import test_conformance as of_redis
from tests.backends.redis.test_conformance import *  # noqa: F403
from tests.topologies.managed.conftest import TAKEN_AWAY, ManagedServer


@pytest.fixture
def url(managed: ManagedServer) -> str:
    return managed.url


@pytest.fixture
def redis_server(managed: ManagedServer) -> ManagedServer:
    return managed


@pytest.mark.parametrize("command", TAKEN_AWAY)
def test_it_is_as_bare_as_it_says(managed: ManagedServer, command: str) -> None:
    with pytest.raises(redis.ResponseError, match="unknown command"):
        managed.tell(command)


def test_it_speaks_tls_only(managed: ManagedServer) -> None:
    with pytest.raises(redis.ConnectionError):
        redis.Redis(port=managed.port, retry=Retry(NoBackoff(), 0)).ping()


@pytest.fixture(scope="module", autouse=True)
def _nothing_was_denied(managed: ManagedServer) -> Iterator[None]:
    yield
    assert managed.client.execute_command("ACL", "LOG") == []  # type: ignore[no-untyped-call]


class TestTroubles(of_redis.TestTroubles):
    names = 1000
