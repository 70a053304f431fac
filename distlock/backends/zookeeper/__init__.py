"""Locks in a ZooKeeper ensemble: each lock has a queue of ephemeral nodes, in the order of their numbers."""

from __future__ import annotations

from distlock.backends.zookeeper.backend import ZooKeeperBackend

__all__ = ["ZooKeeperBackend"]
