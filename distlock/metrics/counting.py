"""What metrics of both kinds share: the places that locks are taken at, and the results that are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from distlock.errors import BackendUnavailable, LockTimeout, TooManyWaiters
from distlock.listening import Where
from distlock.terms import shown_where

T = TypeVar("T")

#: More than any site has. Code that is made anew again and again is a new place each time.
MOST = 10_000


class Places(Generic[T]):
    """The results of *make*, one for each place."""

    def __init__(self, make: Callable[[str], T]) -> None:
        self._make = make
        #: With what has that id, which keeps it from being another's.
        self._known: dict[int | str, tuple[Where, T]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def at(self, where: Where) -> T:
        # The hash of code is that of all its names and constants.
        key = where if isinstance(where, str) else id(where)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST:
                self._known.clear()
            # Two threads may both make one: what they count in is the same.
            known = self._known[key] = where, self._make(shown_where(where))
        return known[1]


GRANTED = "granted"
TIMED_OUT = "timed_out"
REFUSED = "refused"
UNAVAILABLE = "unavailable"
#: Interrupted, cancelled, or never allowed.
FAILED = "failed"
RESULTS = (GRANTED, TIMED_OUT, REFUSED, UNAVAILABLE, FAILED)

#: Seconds: from a free lock on the same host to the longest that anybody waits.
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def result_of(error: BaseException | None) -> str:
    """Return the result of an acquisition that *error* ended; None: the lock stayed taken."""
    if error is None or isinstance(error, LockTimeout):
        return TIMED_OUT
    if isinstance(error, TooManyWaiters):
        return REFUSED
    return UNAVAILABLE if isinstance(error, BackendUnavailable) else FAILED
