"""The options of a lock: its mode and kind, how long it may be held, and the code that wants it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final, Literal

#: All of it, to share it with other readers, or some of its permits.
Mode = Literal["exclusive", "read", "permit"]
EXCLUSIVE: Final = "exclusive"
READ: Final = "read"
PERMIT: Final = "permit"

#: The kinds of names. A lock and a semaphore of one name are two things.
Kind = Literal["lock", "semaphore", "latch"]
LOCK: Final = "lock"
SEMAPHORE: Final = "semaphore"
LATCH: Final = "latch"
KINDS: Final[tuple[Kind, ...]] = (LOCK, SEMAPHORE, LATCH)


class Seat:
    """A caller's place in a batch. Waiters with equal *key* may share one grant.

    The holder that takes it along says which batch it is in.
    """

    __slots__ = ("batch", "key")

    def __init__(self, key: object) -> None:
        self.key = key
        #: The batch that it has joined, or None.
        self.batch: object = None


@dataclass(slots=True)
class Terms:
    """The options that the acquisitions of one lock, or of one guard, have in common. Immutable."""

    #: Lifetime without renewal, seconds.
    ttl: float
    #: Seconds after which a holder counts as hung and is not renewed any more.
    max_hold: float
    #: The view or function that wants the names, for those who look at the lock. Code is turned into words
    #: only where somebody reads them: see `shown_where`.
    where: str | CodeType | None = None
    #: The place of this acquisition in a batch; None if it may not share a grant.
    seat: Seat | None = None
    #: It may begin when another process hands the lock over, before the lock service has confirmed that.
    on_push: bool = False
    mode: Mode = EXCLUSIVE
    #: The limit of permits, and how many are wanted.
    limit: int = 1
    permits: int = 1
    #: Called with the grant when somebody wants it back: see `distlock.grants.grant.OnReleaseRequested`.
    on_release_requested: Callable[[Any], object] | None = None


def calling_code() -> CodeType | None:
    """Return the user's code that made a lock: the innermost caller outside of our packages.

    To be called by a function that a public method calls.
    """
    frame = sys._getframe(2).f_back
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in _OURS:
            return frame.f_code
        frame = frame.f_back
    return None


def shown_where(where: str | CodeType | None) -> str:
    """Return *where* as text for people; "" if it is not known."""
    if isinstance(where, CodeType):
        where = f"{where.co_qualname} ({where.co_filename.rpartition('/')[2]}:{where.co_firstlineno})"
    # The name of a file may be bytes that are no text, and to encode it would fail.
    return where.encode("utf-8", "replace").decode() if where else ""


_OURS = frozenset({"distlock", "django_distlock", "flask_distlock"})
