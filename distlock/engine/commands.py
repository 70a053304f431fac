"""The commands that an algorithm gives its driver: to call the lock service, or to sleep.

The algorithms of this package are generators that yield these commands and do no I/O themselves (sans-I/O).
So one source serves threads and asyncio, and the tests play the same generators in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from distlock import clock
from distlock.owner import Owner

T = TypeVar("T")


class Parker(Protocol):
    """Where one caller sleeps. A wake-up before the sleep is not lost. Several wake-ups count as one."""

    #: Whether its caller may stand still while the process goes on: a task does if its event loop is busy.
    may_stall: bool
    #: The thread or task that sleeps there.
    owner: Owner

    def wake(self) -> None:
        """Wake the caller. Any thread may call it; it returns at once."""

    def alive(self) -> bool:
        """Return whether the caller can still wake. A task can't after its event loop was closed."""


class Call:
    """Call ``function(*arguments)``, which does I/O.

    The algorithm is resumed with its result or its exception.

    Args:
        until: the moment by which the call has to be over, on `distlock.clock.now`. It is the last argument
            of the function. None: the function takes no deadline.
    """

    #: Another thread has made the call. Its task may not have been resumed yet.
    over = False
    #: When the call is over for certain, if only the event loop of the task sees its end.
    ends = math.inf

    def __init__(self, function: Callable[..., Any], *arguments: Any, until: float | None = None) -> None:
        self.function = function
        self.arguments = arguments if until is None else (*arguments, until)
        self.until = until

    def is_over(self) -> bool:
        """Return whether the call is over for the lock service."""
        return self.over or clock.now() >= self.ends


class NewParker:
    """Make a parker of the kind that the driver can wait at."""

    __slots__ = ()


@dataclass(slots=True)
class Park:
    """Sleep at *parker* until it is woken, for *timeout* seconds at most (``math.inf``: no limit).

    Args:
        wait: how a thread sleeps there, where its backend can do better: see `distlock.backends.optional`.
    """

    parker: Parker
    timeout: float
    wait: Callable[[Any, float], None] | None = None


Commands = Generator[Call | Park | NewParker, Any, T]
