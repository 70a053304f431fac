"""What both kinds of metrics share: `Places`, the results of acquisitions, and the bounds of histograms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from distlock.errors import BackendUnavailable, LockTimeout, TooManyWaiters
from distlock.listening import Where
from distlock.terms import shown_where

T = TypeVar("T")

#: `Places` is emptied at this size, to limit its memory in sites that create functions again and again.
MOST = 10_000


class Places(Generic[T]):
    """A cache of what *make* returns for each place in the code that acquires locks."""

    def __init__(self, make: Callable[[str], T]) -> None:
        self._make = make
        #: The results of *make*. The key is a text, or the id of a code object. The reference to the code
        #: object keeps its id from being used again.
        self._known: dict[int | str, tuple[Where, T]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def at(self, where: Where) -> T:
        # An id, because the hash of a code object is slow: it covers all names and constants.
        key = where if isinstance(where, str) else id(where)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST:
                self._known.clear()
            # Two threads may both call *make* for one place. The two results count in the same metrics.
            known = self._known[key] = where, self._make(shown_where(where))
        return known[1]


GRANTED = "granted"
TIMED_OUT = "timed_out"
REFUSED = "refused"
UNAVAILABLE = "unavailable"
#: The acquisition was interrupted or cancelled, or the caller made a mistake.
FAILED = "failed"
RESULTS = (GRANTED, TIMED_OUT, REFUSED, UNAVAILABLE, FAILED)

#: The bounds of histograms, seconds: from a free lock on the same host to a long wait.
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def result_of(error: BaseException | None) -> str:
    """Return the result of an acquisition that *error* ended; None: it timed out without an error."""
    if error is None or isinstance(error, LockTimeout):
        return TIMED_OUT
    if isinstance(error, TooManyWaiters):
        return REFUSED
    return UNAVAILABLE if isinstance(error, BackendUnavailable) else FAILED
