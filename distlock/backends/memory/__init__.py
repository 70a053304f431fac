"""Locks inside one process: for tests, and the model that the services across processes are held to."""

from __future__ import annotations

from distlock.backends.memory.backend import MemoryBackend

__all__ = ["MemoryBackend"]
