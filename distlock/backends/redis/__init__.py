"""Locks in one Redis server: first come, first served, handed off by push."""

from __future__ import annotations

from distlock.backends.redis.backend import RedisBackend

__all__ = ["RedisBackend"]
