"""Locks in the Redis server that sentinels call the primary."""

from __future__ import annotations

from distlock.backends.sentinel.backend import SentinelBackend

__all__ = ["SentinelBackend"]
