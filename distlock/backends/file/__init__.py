"""Locks in a directory, for the processes of one host. There is no server. A lock ends with its process."""

from __future__ import annotations

from distlock.backends.file.backend import FileBackend

__all__ = ["FileBackend"]
