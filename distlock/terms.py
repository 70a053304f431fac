"""The options of a lock: its mode and kind, how long it may be held, and the code that asks for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final, Literal

#: How a name is locked: alone, together with other readers, or by some of its permits.
Mode = Literal["exclusive", "read", "permit"]
EXCLUSIVE: Final = "exclusive"
READ: Final = "read"
PERMIT: Final = "permit"

#: What a name stands for. A lock and a semaphore of one name are two different things.
Kind = Literal["lock", "semaphore", "latch"]
LOCK: Final = "lock"
SEMAPHORE: Final = "semaphore"
LATCH: Final = "latch"
KINDS: Final[tuple[Kind, ...]] = (LOCK, SEMAPHORE, LATCH)


class Seat:
    """A caller's place in a batch. Waiters with an equal *key* may share one grant.

    The holder that shares its grant sets `batch`.
    """

    __slots__ = ("batch", "key")

    def __init__(self, key: object) -> None:
        self.key = key
        #: The batch that the caller has joined; None: it has joined none.
        self.batch: object = None


@dataclass(slots=True)
class Terms:
    """The options of one lock, or of one guard, for all of its acquisitions."""

    #: Lifetime without renewal, seconds.
    ttl: float
    #: Seconds after which a holder counts as hung and is not renewed any more.
    max_hold: float
    #: The view or function that asks for the lock, for operators. `shown_where` turns code into text.
    where: str | CodeType | None = None
    #: One caller's place in a batch: its guard sets it in a copy of the terms. None: no grant is shared.
    seat: Seat | None = None
    #: Whether a caller may begin on a push, before the lock service has confirmed the hand-off.
    on_push: bool = False
    #: Whether a fence guards what the holder does: see `distlock.engine.recovery`.
    fenced: bool = False
    mode: Mode = EXCLUSIVE
    #: How many permits of a semaphore there are, and how many of them one acquisition takes.
    limit: int = 1
    permits: int = 1
    #: Called when the release of a grant is requested: see `distlock.grants.grant.OnReleaseRequested`.
    on_release_requested: Callable[[Any], object] | None = None


def calling_code() -> CodeType | None:
    """Return the user's code that makes a lock: the innermost caller outside of our packages, or None.

    The search begins at the caller of the public method that calls the caller of this function.
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
    # The name of a file may contain bytes that are no text.
    return where.encode("utf-8", "replace").decode() if where else ""


_OURS = frozenset({"distlock", "django_distlock", "flask_distlock"})
