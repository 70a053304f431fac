"""Flawed locks as people write them. Do not use them."""

from __future__ import annotations

from typing import Protocol


class MuseumLock(Protocol):
    """The methods of every exhibit."""

    def acquire(self) -> bool:
        """Try to take the lock, and return whether the caller may go on."""
        ...

    def release(self) -> None: ...
