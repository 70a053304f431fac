"""The ``Server-Timing`` header: how long a request waited for its lock, and held it.

Names of locks are never in it: it goes to every client, and into the developer tools of their browsers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from distlock.errors import LockError
from distlock.grants.grant import Grant
from distlock.operate.looking import Party

HEADER = "Server-Timing"


class Stopwatch:
    """The observer of one guard, and what it measured, seconds."""

    def __init__(self) -> None:
        self.waited: float | None = None
        self.held: float | None = None

    def acquired(self, grant: Grant, waited: float) -> None:
        self.waited = waited

    def contended(self, names: Sequence[str], holder: Party | None) -> None: ...

    def refused(self, names: Sequence[str], error: LockError, waited: float) -> None:
        self.waited = waited

    def released(self, grant: Grant, held: float) -> None:
        self.held = held

    def header(self, existing: str = "") -> str:
        """The value of ``Server-Timing``, after *existing*; "" where there is nothing to say.

        A guard whose names were held already asked nobody, and measured nothing.
        """
        measured = (("lock-wait", self.waited), ("lock-held", self.held))
        said = [existing] if existing.strip() else []
        said += [f"{metric};dur={seconds * 1000:.1f}" for metric, seconds in measured if seconds is not None]
        return ", ".join(said)


class Headers(Protocol):
    """The headers of a response, in both frameworks."""

    def get(self, key: str, default: str, /) -> str: ...

    def __setitem__(self, key: str, value: str, /) -> None: ...


def add_header(stopwatches: Iterable[Stopwatch], headers: Headers) -> None:
    """Let *headers* say what *stopwatches*, those of one request, have measured."""
    for stopwatch in stopwatches:
        if value := stopwatch.header(headers.get(HEADER, "")):
            headers[HEADER] = value
