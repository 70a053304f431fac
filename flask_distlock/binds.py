"""Finds the bind of Flask-SQLAlchemy that ``fence=`` means, and the engine of a bind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flask import current_app

#: The name for SQLALCHEMY_DATABASE_URI, which ``fence=True`` means. Flask-SQLAlchemy has no name for it.
DEFAULT_BIND = "default"


def bind_of(fence: bool | str) -> str | None:
    """Return the bind that the option *fence* means; None: no fence."""
    return DEFAULT_BIND if fence is True else fence or None


def engine_of(bind: str | None) -> Any:
    """Return the current app's engine of *bind*, or None if it has none."""
    db: Any = current_app.extensions.get("sqlalchemy")
    return None if db is None or bind is None else db.engines.get(None if bind == DEFAULT_BIND else bind)


def shown(binds: Iterable[str | None]) -> str:
    """Return the names of *binds*, keys of ``db.engines``, for messages, as one writes them in ``fence=``."""
    return ", ".join(repr(bind or DEFAULT_BIND) for bind in binds) or "none"
