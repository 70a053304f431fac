"""Locks by Redlock: each is held at a majority of several independent Redis servers."""

from __future__ import annotations

from distlock.backends.redlock.backend import RedlockBackend

__all__ = ["RedlockBackend"]
