"""Locks in a Redis Cluster. Each lock is on the node that has its slot."""

from __future__ import annotations

from distlock.backends.cluster.backend import ClusterBackend

__all__ = ["ClusterBackend"]
