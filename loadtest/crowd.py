"""The buyers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many buyers, and how often each buys."""

    users: int = 50
    purchases: int = 10
    #: A buyer who is told to come later does so after this time at the latest, seconds.
    pause: float = 5.0

    @property
    def requests(self) -> int:
        return self.users * self.purchases
