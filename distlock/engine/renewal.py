"""Renewal: each hold with a lease is renewed after every third of its ttl, until its max_hold is over.

A process may have many thousand holds, some of them with a lease of half a second. So a tick looks only at
the holds that are due.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Protocol

from distlock.backends.base import Backend
from distlock.backends.inspectable import MOMENT
from distlock.backends.optional import PushesHolds
from distlock.engine.commands import Call, Commands
from distlock.engine.critical_section import CriticalSection
from distlock.engine.hold import Hold
from distlock.engine.maintenance import MaintenanceThread
from distlock.errors import LockError

logger = logging.getLogger("distlock")

#: The `Hold.due` of a hold whose first look is not planned yet.
NOT_PLANNED = -math.inf

#: Why a hold is lost if the lock service answers that it is not ours.
NOT_OURS = "it was broken, or the lock service forgot it or gave it on"


class LossHandler(Protocol):
    """What the renewer needs of `distlock.engine.grantor.Grantor`."""

    def lose(self, hold: Hold, why: str, cancel: bool) -> None: ...
    def end_hung_readers(self, hold: Hold) -> None: ...
    def why_ended(self, hold: Hold) -> str: ...


class Renewer:
    def __init__(
        self,
        section: CriticalSection,
        backend: Backend,
        now: Callable[[], float],
        thread: MaintenanceThread,
        losing: LossHandler,
    ) -> None:
        self._section = section
        self._backend = backend
        self._now = now
        self._thread = thread
        self._losing = losing
        #: When the status of the process is published next: the thread has to be awake then. ``inf``: the
        #: backend publishes no status.
        self.next_publication = math.inf
        #: The holds to renew, or to end after their max_hold; the latest last.
        self.holds: dict[Hold, None] = {}
        self.forget()

    def forget(self) -> None:
        """Forget all holds: at first, and in a forked child."""
        self.holds.clear()
        #: A heap of planned looks. A look is valid if its time is the hold's `due`, and `holds` has the hold.
        self._looks: list[tuple[float, int, Hold]] = []
        self._count = itertools.count()
        self.start_anew()

    def start_anew(self) -> None:
        """Forget failures of the lock service: at first, after a close, and in a forked child."""
        self._all_due = False
        #: How many seconds the latest renewal took if it failed, as the next one may take as long; else 0.
        self.failing_takes = 0.0
        self._failed_at = 0.0

    # -- under the mutex -------------------------------------------------------------------------

    def add(self, hold: Hold) -> None:
        """Begin to renew *hold*, which the lock service has granted, until it is removed from `holds`."""
        # The lock service answers again.
        self.failing_takes = 0.0
        # `_plan_new` plans the first look later, because most holds end before they need one.
        hold.due = NOT_PLANNED
        self.holds[hold] = None
        due = hold.renewed + min(hold.period, hold.max_hold)
        if self.next_publication != math.inf:
            due = min(due, max(self.next_publication, hold.renewed + MOMENT))
        thread = self._thread
        if due < thread.wakes_at or thread.thread is None:
            thread.wake_before(due)

    def look_at(self, hold: Hold) -> None:
        """Plan the next look at *hold* anew, because it may have to be earlier than planned."""
        self._plan_new()
        self._thread.wake_before(self._plan(hold))

    def look_at_all(self) -> None:
        """Have every hold confirmed now, because the notification of a loss may be missing."""
        if self.holds:
            self._all_due = True
            self._thread.wake_before(self._now())

    def next(self) -> float:
        """Return when the next look is due; ``inf``: there is none."""
        self._plan_new()
        looks = self._looks
        while looks:
            due, _, hold = looks[0]
            if hold.due == due and hold in self.holds:
                return due
            heapq.heappop(looks)
        return math.inf

    def due(self, now: float) -> float:
        return self.next()

    def is_idle(self) -> bool:
        return not self.holds

    def _plan_new(self) -> None:
        # Plan the oldest first: if this is interrupted, the holds without a plan are still the latest ones.
        for hold in reversed([*takewhile(_is_new, reversed(self.holds))]):
            self._plan(hold)

    def _plan(self, hold: Hold) -> float:
        due = self._due(hold)
        if len(self._looks) > 2 * len(self.holds) + 64:
            self._looks = [(kept.due, next(self._count), kept) for kept in self.holds if not _is_new(kept)]
            heapq.heapify(self._looks)
        # Push before setting `due`: after an interrupt in between, the hold would else never be looked at.
        heapq.heappush(self._looks, (due, next(self._count), hold))
        hold.due = due
        return due

    def _take_due(self, now: float) -> list[Hold]:
        """Return the holds that are due, and drop their planned looks. The caller has to plan new ones."""
        taken = []
        while self.next() <= now:
            hold = heapq.heappop(self._looks)[2]
            # This also makes a second planned look with the same time invalid.
            hold.due = math.inf
            taken.append(hold)
        return taken

    def _due(self, hold: Hold) -> float:
        """Return when to look at *hold* next."""
        return min(self._due_by_itself(hold), hold.reads_end)

    def _due_by_itself(self, hold: Hold) -> float:
        ends = hold.ends
        if hold.deadline == math.inf:
            return ends
        if ends <= self._now():
            # Past its max_hold the hold is not renewed, and only the end of its lease matters.
            return hold.deadline
        renewal = hold.renewed + hold.period
        if self.failing_takes:
            renewal = max(renewal, self._failed_at + min(1.0, 0.3 * hold.period))
        return hold.deadline if ends <= renewal else min(renewal, hold.deadline)

    # -- a tick ----------------------------------------------------------------------------------

    def tick(self, until: Callable[[], float]) -> Commands[None]:
        now = self._now()
        with self._section.mutex:
            look_at_all, self._all_due = self._all_due, False
            looked_at = list(self.holds) if look_at_all else self._take_due(now)
            holds = [hold for hold in looked_at if self._may_be_renewed(hold, now, look_at_all)]
            if not look_at_all and any(self._due(hold) <= now for hold in holds):
                # Also renew the holds that are due soon, which saves a later call.
                soon = self._take_due(now + min(hold.period for hold in holds) / 2)
                looked_at += soon
                holds += [hold for hold in soon if self._may_be_renewed(hold, now, look_at_all)]
            elif not look_at_all:
                holds = []
        try:
            for hold in looked_at:
                if now >= hold.reads_end:
                    self._losing.end_hung_readers(hold)
                if now >= hold.deadline or (hold.deadline == math.inf and now >= hold.ends):
                    self._losing.lose(hold, self._losing.why_ended(hold), cancel=True)
            if kept := [hold for hold in holds if hold.acknowledged and hold in self.holds]:
                requests = [hold.request for hold in kept]
                yield from self._confirm(kept, Call(self._backend.renew, requests), now)
            if handed_off := [hold for hold in holds if not hold.acknowledged]:
                assert isinstance(self._backend, PushesHolds)
                numbered = [(hold.request, hold.first_number) for hold in handed_off]
                yield from self._confirm(handed_off, Call(self._backend.acknowledge, numbered), now)
        finally:
            with self._section.mutex:
                self._plan_again(looked_at)

    def _plan_again(self, holds: Iterable[Hold]) -> None:
        for hold in holds:
            if hold in self.holds:
                self._plan(hold)

    def _may_be_renewed(self, hold: Hold, now: float, look_at_all: bool) -> bool:
        # A hold without a lease is only confirmed when a notification may be missing.
        return (
            now < hold.ends
            and now + min(self.failing_takes, hold.period) < hold.deadline
            and (look_at_all or hold.deadline != math.inf)
        )

    def _confirm(self, holds: list[Hold], call: Call, now: float) -> Commands[None]:
        """Make *call*, whose answers say which of *holds* are still ours. End the others as lost."""
        numbers = [hold.first_number for hold in holds]
        try:
            answers = yield call
        except Exception as error:
            # Catch any error, and try again: a server that comes back with other settings may refuse a call.
            self._failed(now)
            unforeseen = not isinstance(error, LockError)
            message = "%s could not be renewed; trying again: %s"
            logger.warning(message, _counted(len(holds)), error, exc_info=unforeseen)
            return
        self.failing_takes = 0.0
        unknown = 0
        for hold, number, ours in zip(holds, numbers, answers, strict=True):
            if ours is None:
                unknown += 1
            elif ours:
                with self._section.mutex:
                    hold.renew(now, hold.request.ttl if hold.deadline != math.inf else math.inf)
            elif hold.first_number == number:
                # If the numbers differ, the fence was raised during the call. The refusal is about the old
                # number then, and the hold is still ours.
                self._losing.lose(hold, NOT_OURS, cancel=False)
        if unknown:
            self._failed(now)
            logger.warning("%s could not be renewed; trying again", _counted(unknown))

    def _failed(self, sent: float) -> None:
        """Note that a call that was sent at *sent* failed."""
        self._failed_at = self._now()
        self.failing_takes = max(0.001, self._failed_at - sent)


def _is_new(hold: Hold) -> bool:
    return hold.due == NOT_PLANNED


def _counted(locks: int) -> str:
    return "1 lock" if locks == 1 else f"{locks} locks"
