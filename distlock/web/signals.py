"""What receivers of signals are told about one guard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from distlock.errors import LockError
from distlock.grant import Grant

Send = Callable[..., object]


class Signals:
    """The observer of one guard in one call, who hands on what it sees: with *about*, as keywords."""

    def __init__(self, acquired: Send, refused: Send, released: Send, **about: Any) -> None:
        self._acquired = acquired
        self._refused = refused
        self._released = released
        self._about = about

    def acquired(self, grant: Grant, waited: float) -> None:
        self._acquired(names=grant.names, grant=grant, waited=waited, **self._about)

    def refused(self, names: Sequence[str], error: LockError, waited: float) -> None:
        self._refused(names=tuple(names), error=error, waited=waited, **self._about)

    def released(self, grant: Grant, held: float) -> None:
        self._released(names=grant.names, grant=grant, held=held, **self._about)
