from __future__ import annotations

from tests.zookeeper_server import own_zookeeper, zookeeper_server

__all__ = ["own_zookeeper", "zookeeper_server"]
