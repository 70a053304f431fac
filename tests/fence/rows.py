"""Rows of the fence's table, as they are stored: processes of other versions find them by these bytes."""

from __future__ import annotations

import hashlib


def row_of(prefix: str, name: str) -> str:
    """Return the key of the row of *name*."""
    return hashlib.sha256(f"{prefix}:{name}".encode()).hexdigest()
