from __future__ import annotations

from tests.metrics.telemetry import reader, spans
from tests.redis_server import own_server
from tests.zookeeper_server import own_zookeeper

__all__ = ["own_server", "own_zookeeper", "reader", "spans"]
