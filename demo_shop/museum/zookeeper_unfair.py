"""The unfair lock of ZooKeeper: one node, which all waiters watch."""

from __future__ import annotations

import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError


class ZooKeeperUnfair:
    """A lock that is a node. All callers try to create it. The losers wait for its end, and try again."""

    def __init__(self, zookeeper: KazooClient, path: str, patience: float = 20.0) -> None:
        self.zookeeper, self.path, self.patience = zookeeper, path, patience

    def acquire(self) -> bool:
        deadline = time.monotonic() + self.patience
        while not self.create():
            gone = threading.Event()
            taken = self.zookeeper.exists(self.path, watch=lambda _, gone=gone: gone.set())
            if taken and not gone.wait(deadline - time.monotonic()):
                return False
        return True

    def create(self) -> bool:
        try:
            self.zookeeper.create(self.path, ephemeral=True)
        except NodeExistsError:
            return False
        return True

    def release(self) -> None:
        self.zookeeper.delete(self.path)
