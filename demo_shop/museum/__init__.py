"""Flawed locks as people write them, each of which mends a fault of the one before. Do not use them."""

from __future__ import annotations

from typing import Protocol


class MuseumLock(Protocol):
    """The methods of every exhibit."""

    def acquire(self) -> bool:
        """Return whether the caller may enter."""
        ...

    def release(self) -> None: ...
