"""Locks as people write them, each mending the fault of the one before. For looking at, not for use."""

from __future__ import annotations

from typing import Protocol


class MuseumLock(Protocol):
    """What every exhibit is."""

    def acquire(self) -> bool:
        """Whether the caller may enter."""
        ...

    def release(self) -> None: ...
