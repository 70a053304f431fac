from __future__ import annotations

from tests.backends.redis.contender import contender
from tests.backends.redis.process import start_process
from tests.backends.redis.proxy import proxy
from tests.redis_server import own_server, redis_server

__all__ = ["contender", "own_server", "proxy", "redis_server", "start_process"]
