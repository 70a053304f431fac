from __future__ import annotations

from tests.databases import databases

__all__ = ["databases"]
