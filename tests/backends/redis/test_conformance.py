from __future__ import annotations

import pytest

from distlock.testing.protocol import ProtocolConformance
from tests.redis_server import RedisServer


class TestRedisProtocol(ProtocolConformance):
    @pytest.fixture
    def url(self, redis_server: RedisServer) -> str:
        return redis_server.url
