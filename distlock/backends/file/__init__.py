"""Locks in a directory: no server, several processes of one host, freed the moment their holder dies."""

from __future__ import annotations

from distlock.backends.file.backend import FileBackend

__all__ = ["FileBackend"]
