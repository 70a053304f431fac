"""Locks in a majority of several independent Redis servers: Redlock."""

from __future__ import annotations

from distlock.backends.redlock.backend import RedlockBackend

__all__ = ["RedlockBackend"]
