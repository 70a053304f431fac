from __future__ import annotations

from tests.redis_server import own_server, redis_server
from tests.zookeeper_server import zookeeper_server

__all__ = ["own_server", "redis_server", "zookeeper_server"]
