"""Locks inside one process: for tests, and as the model for the other lock services."""

from __future__ import annotations

from distlock.backends.memory.backend import MemoryBackend

__all__ = ["MemoryBackend"]
