"""The keeper renews every hold of a client, and clears up what was left behind.

It renews in batches, every third of a ttl, and stops renewing a hung holder after ``max_hold``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from distlock.backends.base import Ask, Backend
from distlock.backends.optional import HandsOver
from distlock.engine.announcing import Announcing
from distlock.engine.answers import SOON, Answers
from distlock.engine.call import Call
from distlock.engine.critical_section import CriticalSection
from distlock.engine.hold import Hold
from distlock.engine.keeper_thread import KeeperThread
from distlock.engine.loss import GIVEN_ON, Lose
from distlock.engine.refusals import Refusals, log
from distlock.engine.retired import Retired
from distlock.engine.schedule import Schedule
from distlock.engine.stalled import Stalled
from distlock.engine.steps import Steps, run
from distlock.errors import LockError, TooManyWaiters

logger = logging.getLogger("distlock")


class Keeper:
    """*lose*: told of the holds that have ended; *end_hung* of those with readers that read for too long.

    *begun*, *threads*: see `KeeperThread`.
    """

    def __init__(
        self,
        section: CriticalSection,
        backend: Backend,
        now: Callable[[], float],
        stalled: Stalled,
        lose: Lose,
        end_hung: Callable[[Hold], None],
        announcing: Announcing,
        begun: Callable[[], None],
        threads: bool,
    ) -> None:
        self._section = section
        self._backend = backend
        self._now = now
        self._stalled = stalled
        self._lose = lose
        self._end_hung = end_hung
        self._announcing = announcing
        self.answers = Answers(section, backend, now)
        self.thread = KeeperThread(self, section, now, begun, threads)
        self._schedule = Schedule(self._due)
        #: Those that are kept. A hold that has ended is taken out of it.
        self.holds = self._schedule.holds
        self.retired = Retired(section, backend, now)
        self.refusals = Refusals()
        self._start_anew()

    def _start_anew(self) -> None:
        self._all_due = False
        #: How long the last failed renewal took to fail. Another one must not outlast a lease.
        self._failing_takes = 0.0
        self._failed_at = 0.0
        self.answers.forget()
        self._announcing.forget()
        self.thread.start_anew()

    # -- what the engine asks for, under its mutex -----------------------------------------------

    def add(self, hold: Hold) -> None:
        # The service has just answered: what it was like before says nothing about it now.
        self._failing_takes = 0.0
        self._schedule.add(hold)
        # Not later than it wants its first look, or there is something to say of it.
        first_look = hold.renewed + min(hold.period, hold.max_hold)
        self.thread.wake_before(min(first_look, self._announcing.soon(hold.renewed)))

    def announce_soon(self) -> None:
        """Somebody has waited for a while."""
        self.thread.wake_before(self._announcing.soon(self._now()))

    def look_at(self, hold: Hold) -> None:
        """It may want its next look earlier than before."""
        self.thread.wake_before(self._schedule.plan(hold))

    def retire(self, ask: Ask) -> None:
        """Take *ask* out of the service's queue, or give its hold back, as soon as the service answers."""
        self.retired.add(ask)
        self.thread.wake_before(self._now())

    def await_answer(self, within: float = SOON) -> None:
        """A release was sent, and nobody waits for its answer: it is read in *within* seconds."""
        if within < SOON or self.answers.due == math.inf:
            self.answers.due = self._now() + within
            self.thread.wake_before(self.answers.due)

    def count(self, refusal: TooManyWaiters) -> None:
        """Log it soon, with others of its kind."""
        self.refusals.count(refusal, self._now())
        self.thread.wake_before(self.refusals.due)

    def hurry(self) -> None:
        """Look after every hold now: news may have been missed."""
        if self.holds:
            self._all_due = True
            self.thread.wake_before(self._now())

    def why_ended(self, hold: Hold) -> str:
        """Why the time of *hold* was over."""
        if self._now() >= hold.ends:
            return f"it was held longer than max_hold={hold.max_hold:g} seconds"
        if not hold.acknowledged:
            return "its hand-over was not acknowledged in time"
        return "its lease ended before it could be renewed"

    # -- the rounds ------------------------------------------------------------------------------

    def tick(self) -> Steps[float]:
        """One round. Returns the seconds until the next one; ``inf`` if there is nothing to keep."""
        yield from self._renew()
        yield from self.answers.tick()
        yield from self.retired.clear_up(self._schedule.next)
        if self._failing_takes:
            self._announcing.put_off()
        elif self._announcing.is_due(self._now()):
            with self._section.mutex:
                due = self._schedule.next()
            yield from self._announcing.tick(due)
        with self._section.mutex:
            refusals = self.refusals.take(self._now())
        log(refusals)
        with self._section.mutex:
            now = self._now()
            dues = [
                self.retired.due(),
                self._schedule.next(),
                self.answers.due,
                self.refusals.due,
                self._stalled.due(now),
                self._announcing.due(now),
            ]
            if now < self.thread.wakes_at:
                # Others count on a round by then: to plan it anew for each of them would cost a wake-up each.
                dues.append(self.thread.wakes_at)
            self.thread.wakes_at = min(dues)
            return max(0.0, self.thread.wakes_at - now)

    def _due(self, hold: Hold) -> float:
        """When the hold wants its next look."""
        return min(self._due_by_itself(hold), hold.reads_end)

    def _due_by_itself(self, hold: Hold) -> float:
        ends = hold.ends
        if hold.deadline == math.inf:
            return ends
        if ends <= self._now():
            # It hangs and is not renewed any more, so a renewal that is due must not keep us awake.
            return hold.deadline
        renewal = hold.renewed + hold.period
        if self._failing_takes:
            renewal = max(renewal, self._failed_at + min(1.0, 0.3 * hold.period))
        return hold.deadline if ends <= renewal else min(renewal, hold.deadline)

    def _renew(self) -> Steps[None]:
        now = self._now()
        with self._section.mutex:
            self._section.catch_up()
            self._stalled.pass_over(now)
            doubt, self._all_due = self._all_due, False
            looked_at = list(self.holds) if doubt else self._schedule.take(now)
            holds = [hold for hold in looked_at if self._may_be_renewed(hold, now, doubt)]
            if not doubt and any(self._due(hold) <= now for hold in holds):
                # Those that will be due soon come along: one request instead of two.
                soon = self._schedule.take(now + min(hold.period for hold in holds) / 2)
                looked_at += soon
                holds += [hold for hold in soon if self._may_be_renewed(hold, now, doubt)]
            elif not doubt:
                holds = []
        try:
            for hold in looked_at:
                if now >= hold.reads_end:
                    self._end_hung(hold)
                if now >= hold.deadline or (hold.deadline == math.inf and self._is_hung(hold, now)):
                    self._lose(hold, self.why_ended(hold), retire=True)
            if kept := [hold for hold in holds if hold.acknowledged and hold in self.holds]:
                asks = [hold.ask for hold in kept]
                yield from self._confirm(kept, Call(self._backend.renew, asks), now)
            if handed := [hold for hold in holds if not hold.acknowledged]:
                assert isinstance(self._backend, HandsOver)
                numbered = [(hold.ask, hold.first_number) for hold in handed]
                yield from self._confirm(handed, Call(self._backend.acknowledge, numbered), now)
        finally:
            with self._section.mutex:
                self._schedule.again(looked_at)

    def _may_be_renewed(self, hold: Hold, now: float, doubt: bool) -> bool:
        # A hold without a lease needs no renewal, only a look when there is doubt.
        return (
            not self._is_hung(hold, now)
            and now + min(self._failing_takes, hold.period) < hold.deadline
            and (doubt or hold.deadline != math.inf)
        )

    def _is_hung(self, hold: Hold, now: float) -> bool:
        return now >= hold.ends

    def _confirm(self, holds: list[Hold], call: Call, now: float) -> Steps[None]:
        """Have the lock service confirm *holds*, in a *call* that answers for each of them."""
        numbers = [hold.first_number for hold in holds]
        try:
            answers = yield call
        except Exception as error:
            # Whatever it is: a server that comes back may have other settings, and refuse ours. The leases
            # end meanwhile.
            self._failed(now)
            unforeseen = not isinstance(error, LockError)
            message = "%s could not be renewed; trying again: %s"
            logger.warning(message, _counted(len(holds)), error, exc_info=unforeseen)
            return
        self._failing_takes = 0.0
        unknown = 0
        for hold, number, ours in zip(holds, numbers, answers, strict=True):
            if ours is None:
                unknown += 1
            elif ours:
                with self._section.mutex:
                    hold.renew(now, hold.ask.ttl if hold.deadline != math.inf else math.inf)
            elif hold.first_number == number:
                # Else it was lifted meanwhile, and is ours with another number.
                self._lose(hold, GIVEN_ON, retire=False)
        if unknown:
            self._failed(now)
            logger.warning("%s could not be renewed; trying again", _counted(unknown))

    def _failed(self, sent: float) -> None:
        """What was sent at *sent* was not answered as it should be."""
        self._failed_at = self._now()
        self._failing_takes = max(0.001, self._failed_at - sent)

    # -- the life of the client ------------------------------------------------------------------

    def is_idle(self) -> bool:
        told = self.refusals.due == self._stalled.due(0.0) == math.inf
        told = told and not self.answers.awaited
        return told and self._announcing.is_idle() and not self.holds and not self.retired

    def close(self) -> None:
        """Stop the thread, then try once more to clear up."""
        self.thread.stop()
        run(self.retired.clear_up(self._schedule.next, last=True))
        with self._section.mutex:
            refusals = self.refusals.take()
            self._start_anew()
            if self.holds or self.retired:
                self.thread.wake_before(self._now())
        log(refusals)

    def after_fork(self) -> None:
        """In the child there is no thread, and nothing to keep."""
        self._schedule.forget()
        self.retired.forget()
        self.refusals.forget()
        self._start_anew()


def _counted(locks: int) -> str:
    return "1 lock" if locks == 1 else f"{locks} locks"
