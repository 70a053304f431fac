"""All wait queues of a client: who may enter them, and what happens to them when the client closes.

Callers own the engine's mutex. No method does I/O.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from distlock.backends.base import LockRequest
from distlock.engine.admission import Admission
from distlock.engine.critical_section import CriticalSection
from distlock.engine.deferred_work import Cancellations
from distlock.engine.hold import Hold, HoldCallsProtocol, Waiter
from distlock.engine.renewal import Renewer
from distlock.engine.sans_io import Commands, Parker
from distlock.engine.wait_queue import WaitQueue
from distlock.errors import ConfigurationError
from distlock.owner import Owner
from distlock.terms import EXCLUSIVE, Terms

#: Seconds after its deadline until a task's waiter is removed. Before that, its event loop may just be busy.
GRACE = 2.0


class WaitQueues:
    """See `distlock.engine.wait_queue.Queues` for the attributes."""

    def __init__(
        self,
        hold_calls: HoldCallsProtocol,
        admission: Admission,
        renewer: Renewer,
        cancellations: Cancellations,
        epoch: int,
        has_ended: Callable[[LockRequest], bool] | None,
    ) -> None:
        self.hold_calls = hold_calls
        self.admission = admission
        self.renewer = renewer
        self.cancellations = cancellations
        self.epoch = epoch
        self.has_ended = has_ended
        self.by_key: dict[str, WaitQueue] = {}
        self.waiting = 0
        #: Seconds of a turn; None: `distlock.engine.hold.TURN`.
        self.turn: float | None = None

    def enter(
        self, key: str, name: str, parker: Parker, timeout: float, options: Terms, now: float
    ) -> tuple[WaitQueue, Waiter] | None:
        """Add a caller to the queue of *key*, for *timeout* seconds at most.

        Returns:
            The queue and the waiter. None if the caller asks once (*timeout* is 0), and other callers of this
            process hold the lock or come first. A caller that wants to read, or permits, may enter all the
            same: see `_may_ask_once`.

        Raises:
            TooManyWaiters: the caller would most likely wait in vain, or a limit is reached.
            ConfigurationError: the caller reads *key* and wants to write it, so it would wait for itself.
        """
        queue = self.by_key.get(key)
        if queue is not None and not queue.busy:
            queue.elect()
            queue = self.by_key.get(key)
        if queue is None:
            pace = self.admission.recall(key, now) if self.admission.remembered else None
            queue = self.by_key[key] = WaitQueue(self, key, name, now, pace, self.turn)
        else:
            if options.mode == EXCLUSIVE and (
                queue.shared or (queue.hold is not None and queue.hold.readers)
            ):
                self.refuse_upgrade(key, name, parker.owner)
            if timeout > 0:
                self.admission.admit(queue, self.waiting, timeout, now)
            elif options.mode == EXCLUSIVE or not self._may_ask_once(queue, parker.owner):
                return None
        leads = not queue.busy and not queue.waiters
        waiter = Waiter(parker, now, now + timeout, not timeout > 0, options, leads)
        queue.waiters.append(waiter)
        self.waiting += 1
        return queue, waiter

    def refuse_overload(self, key: str, timeout: float, now: float) -> None:
        """Raise `TooManyWaiters` if `enter` would refuse a caller with *timeout* seconds."""
        queue = self.by_key.get(key)
        if queue is not None and timeout > 0:
            self.admission.admit(queue, self.waiting, timeout, now)

    def refuse_upgrade(self, key: str, name: str, owner: Owner) -> None:
        """Raise `ConfigurationError` if *owner* reads *key*. *name*: the name, for the message."""
        queue = self.by_key.get(key)
        if queue is not None and queue.is_read_by(owner):
            raise upgrade_refusal(repr(name))

    def _may_ask_once(self, queue: WaitQueue, owner: Owner) -> bool:
        """Return whether a caller with a time-out of 0 that wants to read, or permits, may enter *queue*."""
        if queue.busy or (queue.request is not None and queue.queued is queue.request):
            return False
        if not queue.waiters:
            return True
        # Not behind a waiter of the same owner: a signal handler has interrupted it, so it stands still.
        return self.admission.has_place(queue, self.waiting) and all(
            one.owner != owner for one in queue.waiters
        )

    def recount(self) -> None:
        """Count all waiters anew: an interrupt may have come between a change of a queue and of the count."""
        self.waiting = sum(len(queue.waiters) for queue in self.by_key.values())

    def close(self, why: str) -> list[Hold]:
        """Fail all waiters. Return the holds of this process."""
        queues = list(self.by_key.values())
        for queue in queues:
            queue.fail(why)
            queue.request = None
            queue.elect()
        return [hold for queue in queues for hold in queue.holds]

    def after_fork(self) -> None:
        """Forget everything, in a forked child: what the parent holds stays the parent's."""
        for queue in self.by_key.values():
            for hold in queue.holds:
                # Give the hold an empty queue: then a release in the child does nothing.
                hold.lost = "it belongs to the parent of this forked process"
                hold.queue = WaitQueue(self, queue.key, queue.name, 0.0, None, self.turn)
        self.admission.forget()
        self.by_key = {}
        self.waiting = 0


class StalledWaiters:
    """The waiters of tasks. If their event loop stands still, they are removed after their deadline.

    If they stayed, other callers would wait for them. If the loop goes on later, the task gets a time-out.
    """

    def __init__(self, section: CriticalSection, now: Callable[[], float]) -> None:
        self._section = section
        self._now = now
        #: The waiters whose `Engine.acquire` has not ended yet, with their queues.
        self._watched: dict[Waiter, WaitQueue] = {}

    def watch(self, queue: WaitQueue, waiter: Waiter) -> float:
        """Watch *waiter* of *queue*. Return when it is removed if its event loop stands still."""
        self._watched[waiter] = queue
        return waiter.deadline + GRACE

    def answered(self, waiter: Waiter) -> None:
        self._watched.pop(waiter, None)

    def forget(self, parker: Parker | None = None) -> None:
        """Forget the caller with *parker*; None: all of them."""
        self._watched = {
            waiter: queue
            for waiter, queue in self._watched.items()
            if parker is not None and waiter.parker is not parker
        }

    def due(self, now: float) -> float:
        """Return when the next waiter may have to be removed; ``inf``: there is none."""
        # A waiter that is late already has a call under way. It is looked at again.
        return min((max(one.deadline, now) + GRACE for one in self._watched), default=math.inf)

    def is_idle(self) -> bool:
        return not self._watched

    def tick(self, until: Callable[[], float]) -> Commands[None]:
        """Remove the waiters whose event loops stand still after their deadlines."""
        with self._section.mutex:
            self._section.catch_up()
            self._remove_stalled(self._now())
        yield from ()

    def _remove_stalled(self, now: float) -> None:
        """Remove the waiters whose event loops stand still, and end their grants. Spare those with a call."""
        late = [one for one in self._watched.items() if now >= one[0].deadline + GRACE]
        for waiter, queue in late:
            if waiter.is_calling:
                continue
            del self._watched[waiter]
            if waiter.grant is not None:
                waiter.removed_by_others = True
                queue.drop(waiter.grant)
            elif waiter in queue.waiters:
                waiter.removed_by_others = True
                queue.give_up(waiter, now)


def upgrade_refusal(shown: str) -> ConfigurationError:
    """Return the error for a caller that reads and wants to write. *shown*: the lock, as text."""
    return ConfigurationError(
        f"The lock {shown} can't be taken to write: this very thread or task reads under it, and would wait "
        "for itself. Release the read lock first, and read again what you need; or take the write lock from "
        "the beginning, and downgrade() its grant when only reading is left."
    )
