"""Renewal: each hold with a lease is renewed after every third of its ttl, until its max_hold is over.

A process may have many thousand holds, some of them with a lease of half a second. So a tick checks only
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
from distlock.backends.protocols import PushesHolds
from distlock.engine.critical_section import CriticalSection
from distlock.engine.hold import Hold
from distlock.engine.maintenance import MaintenanceThread
from distlock.engine.sans_io import Call, Commands
from distlock.errors import LockError

logger = logging.getLogger("distlock")

#: The `Hold.due` of a hold whose first check is not planned yet.
NOT_PLANNED = -math.inf

#: Why a hold is lost if the lock service answers that it is not ours.
NOT_OURS = "it was broken, or the lock service forgot it or gave it on"


class LossHandler(Protocol):
    """What the renewer and `EngineSink` need of `distlock.engine.hold_calls.HoldCalls`."""

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
        hold_calls: LossHandler,
    ) -> None:
        self._section = section
        self._backend = backend
        self._now = now
        self._thread = thread
        self._hold_calls = hold_calls
        #: When the status of the process is published next: the thread has to be awake then. ``inf``: the
        #: backend publishes no status.
        self.next_publication = math.inf
        #: The holds to renew, or to end after their max_hold; the latest last.
        self.holds: dict[Hold, None] = {}
        self.forget()

    def forget(self) -> None:
        """Forget all holds: at first, and in a forked child."""
        self.holds.clear()
        #: A heap. A check is valid if its time is the hold's `due`, and `holds` has the hold.
        self._planned_checks: list[tuple[float, int, Hold]] = []
        self._count = itertools.count()
        self._all_due = False
        #: How many seconds the latest renewal took if it failed, as the next one may take as long; else 0.
        self.failed_call_took = 0.0
        self._failed_at = 0.0

    # -- under the mutex -------------------------------------------------------------------------

    def add(self, hold: Hold) -> None:
        """Begin to renew *hold*, which the lock service has granted, until it is removed from `holds`."""
        # The lock service answers again.
        self.failed_call_took = 0.0
        # `_plan_new_holds` plans the first check later, because most holds end before they need one.
        hold.due = NOT_PLANNED
        self.holds[hold] = None
        due = hold.renewed + min(hold.period, hold.max_hold)
        if self.next_publication != math.inf:
            due = min(due, max(self.next_publication, hold.renewed + MOMENT))
        thread = self._thread
        if due < thread.wakes_at or thread.thread is None:
            thread.wake_before(due)

    def replan(self, hold: Hold) -> None:
        """Plan the next check of *hold* anew, because it may have to be earlier than planned."""
        self._plan_new_holds()
        self._thread.wake_before(self._plan(hold))

    def confirm_all(self) -> None:
        """Have every hold confirmed now, because the notification of a loss may be missing."""
        if self.holds:
            self._all_due = True
            self._thread.wake_before(self._now())

    def next(self) -> float:
        """Return when the next check is due; ``inf``: there is none."""
        self._plan_new_holds()
        checks = self._planned_checks
        while checks:
            due, _, hold = checks[0]
            if hold.due == due and hold in self.holds:
                return due
            heapq.heappop(checks)
        return math.inf

    def due(self, now: float) -> float:
        return self.next()

    def is_idle(self) -> bool:
        return not self.holds

    def _plan_new_holds(self) -> None:
        # Plan the oldest first: if this is interrupted, the holds without a plan are still the latest ones.
        for hold in reversed([*takewhile(_is_new, reversed(self.holds))]):
            self._plan(hold)

    def _plan(self, hold: Hold) -> float:
        due = self._due(hold)
        if len(self._planned_checks) > 2 * len(self.holds) + 64:
            self._planned_checks = [
                (kept.due, next(self._count), kept) for kept in self.holds if not _is_new(kept)
            ]
            heapq.heapify(self._planned_checks)
        # Push before setting `due`: after an interrupt in between, the hold would else never be checked.
        heapq.heappush(self._planned_checks, (due, next(self._count), hold))
        hold.due = due
        return due

    def _take_due(self, now: float) -> list[Hold]:
        """Return the holds that are due, and drop their planned checks. The caller has to plan new ones."""
        taken = []
        while self.next() <= now:
            hold = heapq.heappop(self._planned_checks)[2]
            # This also makes a second planned check with the same time invalid.
            hold.due = math.inf
            taken.append(hold)
        return taken

    def _due(self, hold: Hold) -> float:
        """Return when to check *hold* next."""
        return min(self._due_by_itself(hold), hold.first_reader_ends)

    def _due_by_itself(self, hold: Hold) -> float:
        ends = hold.max_hold_ends
        if hold.lease_ends == math.inf:
            return ends
        if ends <= self._now():
            # Past its max_hold the hold is not renewed, and only the end of its lease matters.
            return hold.lease_ends
        renewal = hold.renewed + hold.period
        if self.failed_call_took:
            renewal = max(renewal, self._failed_at + min(1.0, 0.3 * hold.period))
        return hold.lease_ends if ends <= renewal else min(renewal, hold.lease_ends)

    # -- a tick ----------------------------------------------------------------------------------

    def tick(self, until: Callable[[], float]) -> Commands[None]:
        """Renew the holds that are due, and end those whose lease, max_hold or readers' max_hold is over."""
        now = self._now()
        with self._section.mutex:
            all_due, self._all_due = self._all_due, False
            checked = list(self.holds) if all_due else self._take_due(now)
            holds = [hold for hold in checked if self._may_be_renewed(hold, now, all_due)]
            if not all_due and any(self._due(hold) <= now for hold in holds):
                # Also renew the holds that are due soon, which saves a later call.
                soon = self._take_due(now + min(hold.period for hold in holds) / 2)
                checked += soon
                holds += [hold for hold in soon if self._may_be_renewed(hold, now, all_due)]
            elif not all_due:
                holds = []
        try:
            for hold in checked:
                if now >= hold.first_reader_ends:
                    self._hold_calls.end_hung_readers(hold)
                if now >= hold.lease_ends or (hold.lease_ends == math.inf and now >= hold.max_hold_ends):
                    self._hold_calls.lose(hold, self._hold_calls.why_ended(hold), cancel=True)
            if kept := [hold for hold in holds if hold.acknowledged and hold in self.holds]:
                requests = [hold.request for hold in kept]
                yield from self._confirm(kept, Call(self._backend.renew, requests), now)
            if handed_off := [hold for hold in holds if not hold.acknowledged]:
                assert isinstance(self._backend, PushesHolds)
                numbered = [(hold.request, hold.first_number) for hold in handed_off]
                yield from self._confirm(handed_off, Call(self._backend.acknowledge, numbered), now)
        finally:
            with self._section.mutex:
                self._plan_again(checked)

    def _plan_again(self, holds: Iterable[Hold]) -> None:
        for hold in holds:
            if hold in self.holds:
                self._plan(hold)

    def _may_be_renewed(self, hold: Hold, now: float, all_due: bool) -> bool:
        # A hold without a lease is only confirmed when a notification may be missing.
        return (
            now < hold.max_hold_ends
            and now + min(self.failed_call_took, hold.period) < hold.lease_ends
            and (all_due or hold.lease_ends != math.inf)
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
        self.failed_call_took = 0.0
        unknown = 0
        for hold, number, ours in zip(holds, numbers, answers, strict=True):
            if ours is None:
                unknown += 1
            elif ours:
                with self._section.mutex:
                    hold.renew(now, hold.request.ttl if hold.lease_ends != math.inf else math.inf)
            elif hold.first_number == number:
                # If the numbers differ, the fence was raised during the call. The refusal is about the old
                # number then, and the hold is still ours.
                self._hold_calls.lose(hold, NOT_OURS, cancel=False)
        if unknown:
            self._failed(now)
            logger.warning("%s could not be renewed; trying again", _counted(unknown))

    def _failed(self, sent: float) -> None:
        """Note that a call that was sent at *sent* failed."""
        self._failed_at = self._now()
        self.failed_call_took = max(0.001, self._failed_at - sent)


def _is_new(hold: Hold) -> bool:
    return hold.due == NOT_PLANNED


def _counted(locks: int) -> str:
    return "1 lock" if locks == 1 else f"{locks} locks"
