"""Locks in a ZooKeeper ensemble: queues of ephemeral nodes, each of which watches one before it."""

from __future__ import annotations

from distlock.backends.zookeeper.backend import ZooKeeperBackend

__all__ = ["ZooKeeperBackend"]
