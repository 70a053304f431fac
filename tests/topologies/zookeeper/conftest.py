from __future__ import annotations

from tests.backends.zookeeper.contender import contender
from tests.topologies.zookeeper.tls import tls_zookeeper
from tests.zookeeper_server import zookeeper_server

__all__ = ["contender", "tls_zookeeper", "zookeeper_server"]
