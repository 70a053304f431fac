from __future__ import annotations

from tests.backends.redis.process import start_process
from tests.topologies.sentinel.contender import contender
from tests.topologies.sentinel.watched import shared, watched

__all__ = ["contender", "shared", "start_process", "watched"]
