"""What a backend finds when it looks at its lock service as an operator would, each with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

#: ``error``: locks don't work, or don't hold. ``warning``: they may fail one day.
Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    #: The subject, in a word or two: ``eviction``.
    about: str
    said: str
    #: The remedy; "" if nothing has to be done.
    remedy: str = ""


@runtime_checkable
class Examinable(Protocol):
    """A backend that can look at its lock service. None has to."""

    def examine(self) -> Iterator[Finding]:
        """Yield findings about the lock service. Changes nothing there.

        Bounded in time by the backend. Raises `BackendUnavailable`. What it may not look at is a finding.
        """


@runtime_checkable
class MadeByUse(Protocol):
    """A backend whose first lock makes what the others need. To look must not make it."""

    def unmade(self) -> Finding | None:
        """Return a warning if the lock service has not been used yet. Raises as `examine` does."""
