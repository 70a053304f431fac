"""The holds that the keeper keeps, and when each of them wants its next look.

A process may have fifteen thousand of them, and one with a lease of half a second: a round looks at those
that are due, not at all.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable

from distlock.engine.hold import Hold


class Schedule:
    """Used under the engine's mutex. *due*: when a hold wants its next look."""

    def __init__(self, due: Callable[[Hold], float]) -> None:
        self._due = due
        #: What has ended is only taken out of it.
        self.holds: set[Hold] = set()
        self.forget()

    def forget(self) -> None:
        self.holds.clear()
        #: Those that are still to be planned: most end before anybody looks.
        self._new: list[Hold] = []
        #: A hold's own `due` counts: entries with another time are skipped, and those of holds that ended.
        self._looks: list[tuple[float, int, Hold]] = []
        self._count = itertools.count()

    def add(self, hold: Hold) -> None:
        """Keep it. It is planned when somebody asks what is due."""
        new = self._new
        if len(new) > 2 * len(self.holds) + 64:
            self._new = new = [kept for kept in new if kept in self.holds]
        # Kept after it is noted: an interrupt between the two would leave a hold that nobody looks at.
        new.append(hold)
        self.holds.add(hold)

    def plan(self, hold: Hold) -> float:
        """Have it looked at when it is due, whatever was planned before. Returns when that is."""
        hold.due = self._due(hold)
        if len(self._looks) > 2 * len(self.holds) + 64:
            self._looks = [(kept.due, next(self._count), kept) for kept in self.holds]
            heapq.heapify(self._looks)
        heapq.heappush(self._looks, (hold.due, next(self._count), hold))
        return hold.due

    def again(self, holds: Iterable[Hold]) -> None:
        """They were looked at. What has ended meanwhile is kept no more."""
        for hold in holds:
            if hold in self.holds:
                self.plan(hold)

    def next(self) -> float:
        """When the next look is due; ``inf`` if nothing is kept."""
        while self._new:
            if (hold := self._new[-1]) in self.holds:
                self.plan(hold)
            self._new.pop()
        looks = self._looks
        while looks:
            due, _, hold = looks[0]
            if hold.due == due and hold in self.holds:
                return due
            heapq.heappop(looks)
        return math.inf

    def take(self, now: float) -> list[Hold]:
        """Those that are due. They are planned anew with `again`."""
        taken = []
        while self.next() <= now:
            hold = heapq.heappop(self._looks)[2]
            # A second entry with the same time is not its time any more.
            hold.due = math.inf
            taken.append(hold)
        return taken
