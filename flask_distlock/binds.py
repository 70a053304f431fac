"""The binds of Flask-SQLAlchemy: what ``fence=`` names, and whose engine that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

Engine = TypeVar("Engine")

#: The meaning of ``fence=True``: SQLALCHEMY_DATABASE_URI, which has no name as a bind.
DEFAULT_BIND = "default"


def bind_of(fence: bool | str) -> str | None:
    """The bind that *fence* means; None: none."""
    return DEFAULT_BIND if fence is True else fence or None


def engine_of(engines: Mapping[str | None, Engine], bind: str) -> Engine | None:
    """The one of *engines*, those of ``db.engines``, that *bind* means; None: there is none."""
    return engines.get(None if bind == DEFAULT_BIND else bind)


def shown(binds: Iterable[str | None]) -> str:
    """*binds*, the keys of ``db.engines``, as ``fence=`` takes them, for messages."""
    return ", ".join(repr(bind or DEFAULT_BIND) for bind in binds) or "none"
