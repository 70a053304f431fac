"""By when a call has to be over."""

from __future__ import annotations

import math

from distlock import clock

#: A process that wakes up so much later than it wanted to has not been running, seconds.
_STOPPED = 0.05


class Deadline(float):
    """The moment by which a call is over, on `distlock.clock.now`: some seconds from its beginning.

    A process that was stopped did not wait, so it may begin anew; never past what its caller has time for.
    """

    patience: float
    latest: float

    def __new__(cls, patience: float, latest: float = math.inf) -> Deadline:
        made = super().__new__(cls, min(clock.now() + patience, latest))
        made.patience, made.latest = patience, latest
        return made

    def extended(self) -> Deadline:
        """Itself, or a new one if it passed a while ago."""
        return Deadline(self.patience, self.latest) if clock.now() > self + _STOPPED else self
