"""The places in the code that locks are taken at: each is put into words once, and then known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

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
