"""Locks in a ZooKeeper ensemble: lines of ephemeral nodes, in which each watches the one before it."""

from __future__ import annotations

from distlock.backends.zookeeper.backend import ZooKeeperBackend

__all__ = ["ZooKeeperBackend"]
