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
    #: Nothing is sent after it.
    hard: bool

    def __new__(cls, patience: float, latest: float = math.inf, hard: bool = False) -> Deadline:
        made = super().__new__(cls, min(clock.now() + patience, latest))
        made.patience, made.latest, made.hard = patience, latest, hard
        return made

    def extended(self) -> Deadline:
        """Itself, or a new one if it passed a while ago."""
        late = clock.now() > self + _STOPPED
        return Deadline(self.patience, self.latest, self.hard) if late else self
