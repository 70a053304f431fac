"""Admission: a caller that would most likely wait in vain is refused at once.

This keeps promise G6 (docs/explanation/promises.md). A caller behind n others waits for n + 1 grants. Its
wait is expected to be as long as the last n + 1 grants took in this process; that includes the turns of other
processes. One slow grant counts once, however long the queue is. When it is over, it counts for no more than
all other grants together. A queue that has become slow is known as slow after one time-out.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Sized
from typing import Protocol

from distlock.backends.base import Acquired, LockRequest
from distlock.engine.critical_section import CriticalSection
from distlock.engine.maintenance import MaintenanceThread
from distlock.engine.sans_io import Commands
from distlock.errors import LockTimeout, TooManyWaiters

logger = logging.getLogger("distlock")

#: A caller is admitted if its expected wait is at most this share of what is left of its time-out.
TIMEOUT_SHARE = 0.8
#: The fewest grants that an expectation rests on: two or three may be quick, or slow, by chance.
FEWEST_GRANTS = 8
#: From how many grants on one of them may count as a stall: the first grants of a slow queue are all long.
COMPARABLE = 3
#: How many gaps between grants are remembered for a name. The time of more grants is extrapolated.
MOST_GAPS = 128
#: Seconds after which a name that nobody waits for is unknown again: what was slow then may be fast now.
FORGOTTEN = 30.0
#: How many names that nobody waits for are remembered.
REMEMBERED = 1024


class Pace:
    """How long the grants of one wait queue take while callers wait."""

    __slots__ = ("_all", "_gaps", "_more", "_most", "in_vain", "noted")

    def __init__(self) -> None:
        #: Seconds from grant to grant, on a clock that stands still while nobody waits.
        self._gaps = deque[float](maxlen=MOST_GAPS)
        #: The sum of `_gaps` and the longest of them; None: not computed since the last change.
        self._all: tuple[float, float] | None = None
        #: An upper bound of the sum of `_gaps`, and after how many more gaps it is computed anew.
        self._most, self._more = 0.0, MOST_GAPS
        #: The longest wait without a grant since the last grant. What has lasted so long most likely lasts as
        #: long again, and not longer: https://en.wikipedia.org/wiki/Lindy_effect
        self.in_vain = 0.0
        #: When the last grant or the last time-out was.
        self.noted = 0.0

    def granted(self, gap: float, now: float, whole: bool) -> None:
        """Note a grant, *gap* seconds after the grant before.

        *whole*: False if the real gap may be longer. Then *gap* counts only if the last gap is shorter.
        """
        gap, self.in_vain = max(gap, self.in_vain), 0.0
        if whole or gap > self._last():
            self._most += gap
            self._gaps.append(gap)
            self._all = None
            self.noted = now
            self._more -= 1
            if self._more <= 0:
                self._most, self._more = sum(self._gaps), MOST_GAPS

    def gave_up(self, gap: float, now: float) -> bool:
        """Note a wait of *gap* seconds without a grant. Return False if it does not exceed the last gap."""
        if gap <= self._last():
            return False
        self.in_vain, self.noted = max(gap, self.in_vain), now
        return True

    def expected_at_most(self, grants: int, gap: float) -> float:
        """Return an upper bound of `expected`, which is cheap and enough to admit most callers."""
        return gap + self._most * max(1.0, grants / MOST_GAPS)

    def _last(self) -> float:
        return self._gaps[-1] if self._gaps else 0.0

    def past(self, grants: int) -> float:
        """Return how many seconds the last *grants* grants took.

        A stall is a grant that took longer than all the others together. It counts as long as those.
        """
        if not self._gaps:
            return 0.0
        if grants < len(self._gaps):
            gaps = [*self._gaps][-grants:]
            whole, longest = sum(gaps), max(gaps)
        else:
            self._all = self._all or (sum(self._gaps), max(self._gaps))
            whole, longest = self._all
        usual = whole if len(self._gaps) < COMPARABLE else min(whole, 2 * (whole - longest))
        return usual * max(1.0, grants / MOST_GAPS)

    def expected(self, grants: int, gap: float) -> float:
        """Return how many seconds the next *grants* grants are expected to take.

        *gap*: for how many seconds the first of them has been awaited. It is expected to take as long again.
        """
        return max(self.past(grants), gap + self.past(grants - 1))


class AdmissionState(Protocol):
    """What `Admission` needs of one wait queue."""

    name: str
    #: When the present gap began: at the last grant; before the first grant, when the first caller came; or
    #: when the last waiter gave up.
    since: float
    #: Whether there was a grant before. If not, the gap before the next grant is not measured as a whole.
    granted: bool
    pace: Pace | None

    @property
    def waiters(self) -> Sized: ...

    @property
    def turns(self) -> int:
        """How many grants the waiters wait for, at most one each."""


class Admission:
    """Decides which callers may enter a wait queue. Callers own the engine's mutex."""

    def __init__(self, max_waiters: int | None, max_waiters_total: int | None) -> None:
        self.max_waiters = max_waiters
        self.max_waiters_total = max_waiters_total
        #: The paces of keys whose queues were deleted, the latest last.
        self.remembered: dict[str, Pace] = {}

    def admit(self, queue: AdmissionState, waiting: int, timeout: float, now: float) -> None:
        """Raise `TooManyWaiters` if one more caller, with *timeout* seconds left, may not enter *queue*.

        *waiting*: the number of callers in all queues. If nobody waits in *queue*, only `max_waiters_total`
        counts. A caller that makes the queue is not checked at all: see `WaitQueues.enter`.
        """
        ahead = len(queue.waiters)
        if self.max_waiters is not None and ahead >= self.max_waiters:
            raise _full(queue.name, ahead, f"max_waiters={self.max_waiters}")
        if self.max_waiters_total is not None and waiting >= self.max_waiters_total:
            raise _full(queue.name, waiting, f"max_waiters_total={self.max_waiters_total}")
        if not ahead or timeout == math.inf or expected_at_most(queue, now) <= TIMEOUT_SHARE * timeout:
            return
        if (expected := expected_wait(queue, now)) > TIMEOUT_SHARE * timeout:
            raise TooManyWaiters(
                f"Waiting for the lock {queue.name!r} would take about {_seconds(expected)}, behind {ahead} "
                f"{'other' if ahead == 1 else 'others'} of this process: more than {TIMEOUT_SHARE} of "
                f"what is left of the time-out, {_seconds(timeout)}. Try again later. If that lasts, look at "
                "what holds the lock for so long, or raise the time-out.",
                name=queue.name,
                expected_wait=expected,
            )

    def has_place(self, queue: AdmissionState, waiting: int) -> bool:
        """Return whether one more caller stays within the fixed limits. *waiting*: see `admit`."""
        line, total = self.max_waiters, self.max_waiters_total
        return (line is None or len(queue.waiters) < line) and (total is None or waiting < total)

    def granted(self, queue: AdmissionState, now: float, waited: bool) -> None:
        """Note that *queue* was granted its lock. *waited*: the lock was not simply free."""
        if waited:
            queue.pace = queue.pace or Pace()
            queue.pace.granted(now - queue.since, now, whole=queue.granted)
        elif queue.pace is not None:
            queue.pace.in_vain = 0.0
        queue.since = now
        queue.granted = True

    def timed_out(self, queue: AdmissionState, now: float) -> None:
        """Note that a waiter gives up, before it leaves *queue*. Only the wait of the last waiter counts."""
        if len(queue.waiters) == 1:
            queue.pace = queue.pace or Pace()
            if queue.pace.gave_up(now - queue.since, now):
                queue.since = now

    def recall(self, key: str, now: float) -> Pace | None:
        """Remove and return the pace of *key*, which gets a queue again; None: it is unknown or too old."""
        pace = self.remembered.pop(key, None)
        return pace if pace is None or now - pace.noted < FORGOTTEN else None

    def remember(self, key: str, pace: Pace) -> None:
        """Remember the *pace* of *key*, whose queue is deleted, and forget the oldest of too many."""
        self.remembered[key] = pace
        if len(self.remembered) > REMEMBERED:
            del self.remembered[next(iter(self.remembered))]

    def forget(self) -> None:
        self.remembered = {}


def expected_wait(queue: AdmissionState, now: float) -> float:
    """Return how many seconds one more caller of *queue* is expected to wait."""
    pace, gap = queue.pace or _UNKNOWN, _open_gap(queue, now)
    grants = queue.turns + 1
    if grants >= FEWEST_GRANTS:
        return pace.expected(grants, gap)
    return max(pace.expected(grants, gap), pace.expected(FEWEST_GRANTS, gap) * grants / FEWEST_GRANTS)


def expected_at_most(queue: AdmissionState, now: float) -> float:
    """Return an upper bound of `expected_wait`, at a cost that does not grow with the queue."""
    return (queue.pace or _UNKNOWN).expected_at_most(len(queue.waiters) + 1, _open_gap(queue, now))


def _open_gap(queue: AdmissionState, now: float) -> float:
    """Return for how many seconds the next grant has been awaited."""
    pace = queue.pace or _UNKNOWN
    return max(now - queue.since, pace.in_vain if now - pace.noted < pace.in_vain else 0.0)


def _seconds(seconds: float) -> str:
    shown = f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"
    return "1 second" if shown == "1" else f"{shown} seconds"


def _full(name: str, waiting: int, limit: str) -> TooManyWaiters:
    return TooManyWaiters(
        f"No room for one more waiter for the lock {name!r}: "
        f"{'1 caller of this process waits' if waiting == 1 else f'{waiting} callers of this process wait'} "
        f"already ({limit}). Try again later, or raise the limit.",
        name=name,
    )


_UNKNOWN = Pace()


#: For how many seconds refusals are counted, to be logged together: a rush may bring thousands of them.
LOG_PERIOD = 1.0
#: How many names have a line of their own in the log. The other names share one line.
NAMES = 20


class Refusals:
    """The refusals that are not logged yet. The maintenance thread logs them."""

    def __init__(self, section: CriticalSection, now: Callable[[], float], thread: MaintenanceThread) -> None:
        self._section = section
        self._now = now
        self._thread = thread
        self._counts: Counter[str | None] = Counter()
        #: The message of the latest refusal of each name.
        self._words: dict[str | None, str] = {}
        self.forget()

    def forget(self) -> None:
        self._due = math.inf
        self._counts.clear()
        self._words.clear()

    def note(self, refusal: TooManyWaiters) -> None:
        """Have *refusal* logged soon, together with others for its name. The caller owns the mutex."""
        if not self._counts:
            self._due = self._now() + LOG_PERIOD
        key = refusal.name if refusal.name in self._counts or len(self._counts) < NAMES else None
        self._counts[key] += 1
        self._words[key] = str(refusal)
        self._thread.wake_before(self._due)

    def take(self) -> list[tuple[int, str]]:
        """Return the counts with their messages, and start from zero. The caller owns the mutex."""
        shared = "The last one of several locks: "
        taken = [
            (count, self._words[key] if key is not None else f"{shared}{self._words[key]}")
            for key, count in self._counts.items()
        ]
        self.forget()
        return taken

    def due(self, now: float) -> float:
        return self._due

    def is_idle(self) -> bool:
        return self._due == math.inf

    def tick(self, until: Callable[[], float]) -> Commands[None]:
        """Log the refusals if that is due."""
        with self._section.mutex:
            refusals = self.take() if self._now() >= self._due else []
        log_refusals(refusals)
        yield from ()


def log_refusals(refusals: list[tuple[int, str]]) -> None:
    for count, words in refusals:
        logger.warning("%d refused at once: %s", count, words)


class DifferingLimits:
    """Logs, once for each pair, that callers give different limits for one semaphore.

    During a deployment that is normal.
    """

    #: At most how many logged pairs are remembered, because HTTP clients may choose the names.
    MOST = 1000

    def __init__(self) -> None:
        self._logged: set[tuple[str, int, int]] = set()

    def compare(self, name: str, request: LockRequest, answer: Acquired) -> None:
        """Log it if *answer* has another limit for the semaphore *name* than *request*."""
        other = answer.other_limit
        known = request.key, min(request.limit, other), max(request.limit, other)
        if not other or known in self._logged:
            return
        if len(self._logged) >= self.MOST:
            self._logged.clear()
        self._logged.add(known)
        logger.warning(
            "The semaphore %r is asked for with limit=%d here, and with limit=%d elsewhere. Each caller "
            "enters by its own. That is as it should be during a deployment; else write one everywhere.",
            name,
            request.limit,
            other,
        )


def is_time_out(error: BaseException) -> bool:
    """Return whether `Lock.acquire` returns None for *error*, because the caller would wait in vain.

    Log a `LockTimeout`: it says that callers would wait for each other, and names the line to change.
    """
    if isinstance(error, LockTimeout):
        logger.warning("%s", error)
        return True
    return isinstance(error, TooManyWaiters) and error.expected_wait is not None
