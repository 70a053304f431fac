from __future__ import annotations

from tests.backends.redis.contender import contender
from tests.redis_server import own_server, redis_server

__all__ = ["contender", "own_server", "redis_server"]
