"""The bind of Flask-SQLAlchemy that ``fence=`` means, and the engine of a bind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flask import current_app

#: The meaning of ``fence=True``: SQLALCHEMY_DATABASE_URI, which has no name as a bind.
DEFAULT_BIND = "default"


def bind_of(fence: bool | str) -> str | None:
    """Return the bind that *fence* means; None: none."""
    return DEFAULT_BIND if fence is True else fence or None


def engine_of(bind: str | None) -> Any:
    """Return the engine of the current app that *bind* means; None: there is none."""
    db: Any = current_app.extensions.get("sqlalchemy")
    return None if db is None or bind is None else db.engines.get(None if bind == DEFAULT_BIND else bind)


def shown(binds: Iterable[str | None]) -> str:
    """Show *binds*, keys of ``db.engines``, as ``fence=`` takes them."""
    return ", ".join(repr(bind or DEFAULT_BIND) for bind in binds) or "none"
