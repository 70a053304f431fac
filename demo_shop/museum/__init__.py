"""Locks as people write them, each mending the fault of the one before. For looking at, not for use."""

from __future__ import annotations

from typing import Protocol


class MuseumLock(Protocol):
    """The methods of every exhibit."""

    def acquire(self) -> bool:
        """Return whether the caller may enter."""
        ...

    def release(self) -> None: ...
