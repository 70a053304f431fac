"""How callers that were refused are logged: as counts, or a rush would write a line for each of thousands."""

from __future__ import annotations

import logging
import math
from collections import Counter

from distlock.errors import LockTimeout, TooManyWaiters

logger = logging.getLogger("distlock")

#: Seconds that one count is for.
PERIOD = 1.0
#: How many names have a line of their own; the others share one.
NAMES = 20


class Refusals:
    """What was refused and is not logged yet. The keeper logs it; the engine counts under its mutex."""

    def __init__(self) -> None:
        #: When the counts are to be logged; ``inf`` while there are none.
        self.due = math.inf
        self._counts: Counter[str | None] = Counter()
        #: For each name what the last one was told: the cause, and the remedy.
        self._words: dict[str | None, str] = {}

    def count(self, refusal: TooManyWaiters, now: float) -> None:
        if not self._counts:
            self.due = now + PERIOD
        key = refusal.name if refusal.name in self._counts or len(self._counts) < NAMES else None
        self._counts[key] += 1
        self._words[key] = str(refusal)

    def take(self, now: float = math.inf) -> list[tuple[int, str]]:
        """The counts, with the words to log, if they are due by *now*. They begin anew."""
        if now < self.due:
            return []
        taken = [
            (
                count,
                self._words[key] if key is not None else f"The last one of several locks: {self._words[key]}",
            )
            for key, count in self._counts.items()
        ]
        self.forget()
        return taken

    def forget(self) -> None:
        self.due = math.inf
        self._counts.clear()
        self._words.clear()


def is_time_out(error: BaseException) -> bool:
    """Whether *error* refuses a caller whose time-out is certain, or expected: for `acquire` it is one."""
    if isinstance(error, LockTimeout):
        # It waits in a ring. Nobody else would be told of the line to change.
        logger.warning("%s", error)
        return True
    return isinstance(error, TooManyWaiters) and error.expected_wait is not None


def log(refusals: list[tuple[int, str]]) -> None:
    for count, words in refusals:
        logger.warning("%d refused at once: %s", count, words)
