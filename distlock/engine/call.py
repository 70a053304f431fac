"""One call to a lock service, a step of an algorithm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from distlock import clock


class Call:
    """Do I/O: the answer of ``function(*arguments)``, or its exception, comes back to the algorithm.

    *until*: the moment by which it has to be over, on `distlock.clock.now`; the last argument of *function*.
    """

    __slots__ = ("arguments", "ends", "function", "over", "until")

    def __init__(self, function: Callable[..., Any], *arguments: Any, until: float | None = None) -> None:
        #: It was carried out in another thread than that of the algorithm, which may not know it yet.
        self.over = False
        self.function = function
        if until is None:
            self.arguments, self.until = arguments, math.inf
        else:
            self.arguments, self.until = (*arguments, until), until
        #: The moment by which it is over, where only the event loop of the algorithm hears of that.
        self.ends = math.inf

    def is_over(self) -> bool:
        """Whether the lock service can do no more what it was asked."""
        return self.over or clock.now() >= self.ends
