from __future__ import annotations

import pytest

from distlock.testing.protocol import LeaseConformance, ProtocolConformance
from distlock.testing.threads import ThreadConformance
from distlock.testing.troubles import TroubleConformance
from tests.redis_server import RedisServer


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url


class TestProtocol(ProtocolConformance, LeaseConformance):
    pass


class TestThreads(ThreadConformance):
    pass


class TestTroubles(TroubleConformance):
    pass
