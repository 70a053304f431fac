from __future__ import annotations

from tests.backends.zookeeper.contender import contender
from tests.topologies.zookeeper.tls import tls_zookeeper

__all__ = ["contender", "tls_zookeeper"]
