"""The sessions of SQLAlchemy around a lock, and the fence's row in its databases."""

from __future__ import annotations
