from __future__ import annotations

from tests.backends.zookeeper.contender import contender
from tests.backends.zookeeper.curator import java_classes
from tests.backends.zookeeper.proxy import proxy
from tests.zookeeper_server import own_zookeeper, zookeeper_server

__all__ = ["contender", "java_classes", "own_zookeeper", "proxy", "zookeeper_server"]
