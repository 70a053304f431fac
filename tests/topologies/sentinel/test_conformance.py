"""The whole kit, as one server passes it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.backends.redis import test_conformance as of_redis
from tests.backends.redis.test_conformance import *  # noqa: F403
from tests.topologies.sentinel.watched import Calm, client


@pytest.fixture
def url(shared: Calm) -> str:
    return shared.url


@pytest.fixture
def redis_server(shared: Calm) -> SimpleNamespace:
    primary = client(shared.primary())
    # It connects now, before a test counts what is open.
    primary.ping()
    return SimpleNamespace(client=primary)


class TestTroubles(of_redis.TestTroubles):
    #: With a Redis alone all 20,000 are seen to be forgotten.
    names = 1_000
