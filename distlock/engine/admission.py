"""Admission: a caller that would most likely wait in vain is refused at once, not stored. G6 lives here.

Behind n others one waits for n + 1 grants, so the wait is expected to be as long as the last n + 1 grants of
this process took. The turns of other processes are in that, and nobody has to ask them. One slow grant counts
once, however long the line is, and when it is over for no more than the others together: what stood still
goes on. A line that has become slow is known as such when one time-out is over.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Sized
from typing import Protocol

from distlock.backends.base import Acquired, LockRequest
from distlock.engine.commands import Commands
from distlock.engine.critical_section import CriticalSection
from distlock.engine.maintenance import MaintenanceThread
from distlock.errors import LockTimeout, TooManyWaiters

logger = logging.getLogger("distlock")

#: A caller is admitted if its expected wait is at most this share of what is left of its time-out.
SHARE = 0.8
#: The fewest grants that an expectation rests on: two or three may be quick, or slow, by chance.
FEW = 8
#: How many grants it takes to call one of them a stall: the first grants of a slow queue are all long.
COMPARABLE = 3
#: How many grants of a name are remembered. A longer queue is expected to go on as those did.
MANY = 128
#: Seconds after which a name that nobody waits for is unknown again: what was slow then may be fast now.
FORGOTTEN = 30.0
#: How many names that nobody waits for are remembered.
REMEMBERED = 1024


class Pace:
    """How often a wait queue was granted its lock while callers waited. No history counts as no wait."""

    __slots__ = ("_all", "_gaps", "_more", "_most", "in_vain", "noted")

    def __init__(self) -> None:
        #: Seconds from grant to grant, on a clock that stands still while nobody waits.
        self._gaps = deque[float](maxlen=MANY)
        #: Their sum, and the longest. Behind a long line each caller asks for it, and finds it added up.
        self._all: tuple[float, float] | None = None
        #: Not less than their sum, and after how many more of them it is added up anew.
        self._most, self._more = 0.0, MANY
        #: The longest wait without a grant since the last one. What has lasted so long most likely lasts as
        #: long again, and not longer: https://en.wikipedia.org/wiki/Lindy_effect
        self.in_vain = 0.0
        #: When the last of both was.
        self.noted = 0.0

    def granted(self, gap: float, now: float, whole: bool) -> None:
        """Another grant. *whole*: *gap* is from grant to grant; else it is that long at least."""
        gap, self.in_vain = max(gap, self.in_vain), 0.0
        if whole or gap > self._last():
            self._most += gap
            self._gaps.append(gap)
            self._all = None
            self.noted = now
            self._more -= 1
            if self._more <= 0:
                self._most, self._more = sum(self._gaps), MANY

    def gave_up(self, gap: float, now: float) -> bool:
        """A wait of *gap* seconds without a grant. False: it tells nothing, since a grant took longer."""
        if gap <= self._last():
            return False
        self.in_vain, self.noted = max(gap, self.in_vain), now
        return True

    def takes_at_most(self, grants: int, gap: float) -> float:
        """Not less than `takes`, and without looking at each of them: few callers have to be told more."""
        return gap + self._most * max(1.0, grants / MANY)

    def _last(self) -> float:
        return self._gaps[-1] if self._gaps else 0.0

    def took(self, grants: int) -> float:
        """Seconds that the last *grants* grants took, but for a stall: it is longer than all the others."""
        if not self._gaps:
            return 0.0
        if grants < len(self._gaps):
            gaps = [*self._gaps][-grants:]
            whole, longest = sum(gaps), max(gaps)
        else:
            self._all = self._all or (sum(self._gaps), max(self._gaps))
            whole, longest = self._all
        usual = whole if len(self._gaps) < COMPARABLE else min(whole, 2 * (whole - longest))
        return usual * max(1.0, grants / MANY)

    def takes(self, grants: int, gap: float) -> float:
        """Seconds for the next *grants* grants. *gap*: how long the next one has been awaited by now.

        It takes as long again. The open gap is one among others, unless the last whole one was longer.
        """
        return max(self.took(grants), gap + self.took(grants - 1))


class AdmissionState(Protocol):
    """The admission state of one wait queue."""

    name: str
    #: When the last grant was (where there was one), or the first caller came: the next interval's begin.
    since: float
    #: Whether there was a grant.
    granted: bool
    pace: Pace | None

    @property
    def waiters(self) -> Sized: ...

    @property
    def turns(self) -> int:
        """How many grants they are waiting for. No more than there are."""


class Admission:
    """Which callers may come in, and how long each name's waits are. The engine calls it under its mutex."""

    def __init__(self, max_waiters: int | None, max_waiters_total: int | None) -> None:
        self.max_waiters = max_waiters
        self.max_waiters_total = max_waiters_total
        #: The paces of names without a queue, the one that was left last at the end.
        self.remembered: dict[str, Pace] = {}

    def admit(self, queue: AdmissionState, waiting: int, timeout: float, now: float) -> None:
        """Raise `TooManyWaiters` if one more caller, with *timeout* seconds left, can't come in.

        *waiting*: the callers in all queues. The one that is next in its queue may always enter.
        """
        ahead = len(queue.waiters)
        if self.max_waiters is not None and ahead >= self.max_waiters:
            raise _full(queue.name, ahead, f"max_waiters={self.max_waiters}")
        if self.max_waiters_total is not None and waiting >= self.max_waiters_total:
            raise _full(queue.name, waiting, f"max_waiters_total={self.max_waiters_total}")
        if not ahead or timeout == math.inf or expected_at_most(queue, now) <= SHARE * timeout:
            return
        if (expected := expected_wait(queue, now)) > SHARE * timeout:
            raise TooManyWaiters(
                f"Waiting for the lock {queue.name!r} would take about {_seconds(expected)}, behind {ahead} "
                f"{'other' if ahead == 1 else 'others'} of this process: more than {SHARE} of what is left "
                f"of the time-out, {_seconds(timeout)}. Try again later. If that lasts, look at what holds "
                "the lock for so long, or raise the time-out.",
                name=queue.name,
                expected_wait=expected,
            )

    def has_place(self, queue: AdmissionState, waiting: int) -> bool:
        """Return whether one more caller stays within the fixed limits. *waiting*: see `admit`."""
        line, total = self.max_waiters, self.max_waiters_total
        return (line is None or len(queue.waiters) < line) and (total is None or waiting < total)

    def granted(self, queue: AdmissionState, now: float, waited: bool) -> None:
        """Note that the queue got its lock. *waited*: it was not simply free."""
        if waited:
            queue.pace = queue.pace or Pace()
            queue.pace.granted(now - queue.since, now, whole=queue.granted)
        elif queue.pace is not None:
            queue.pace.in_vain = 0.0
        queue.since = now
        queue.granted = True

    def timed_out(self, queue: AdmissionState, now: float) -> None:
        """Note that a waiter gave up. After the last one, the queue starts anew."""
        if len(queue.waiters) == 1:
            queue.pace = queue.pace or Pace()
            if queue.pace.gave_up(now - queue.since, now):
                queue.since = now

    def recall(self, key: str, now: float) -> Pace | None:
        """Return what is known of a name that gets a queue again."""
        pace = self.remembered.pop(key, None)
        return pace if pace is None or now - pace.noted < FORGOTTEN else None

    def remember(self, key: str, pace: Pace) -> None:
        """Remember *pace* of a queue that is deleted."""
        self.remembered[key] = pace
        if len(self.remembered) > REMEMBERED:
            del self.remembered[next(iter(self.remembered))]

    def forget(self) -> None:
        self.remembered = {}


def expected_wait(queue: AdmissionState, now: float) -> float:
    """Return the seconds that one more caller of *queue* waits, as far as one can tell."""
    pace, gap = queue.pace or _UNKNOWN, _open_gap(queue, now)
    grants = queue.turns + 1
    if grants >= FEW:
        return pace.takes(grants, gap)
    return max(pace.takes(grants, gap), pace.takes(FEW, gap) * grants / FEW)


def expected_at_most(queue: AdmissionState, now: float) -> float:
    """Not less than `expected_wait`, at a cost that does not grow with the line."""
    return (queue.pace or _UNKNOWN).takes_at_most(len(queue.waiters) + 1, _open_gap(queue, now))


def _open_gap(queue: AdmissionState, now: float) -> float:
    """How long the next grant has been awaited by now."""
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


#: Refusals are logged as counts, each for so many seconds: a rush would write a line for each of thousands.
PERIOD = 1.0
#: How many names have a line of their own; the others share one.
NAMES = 20


class Refusals:
    """The callers that were refused at once, and are not logged yet. The maintenance thread logs them."""

    def __init__(self, section: CriticalSection, now: Callable[[], float], thread: MaintenanceThread) -> None:
        self._section = section
        self._now = now
        self._thread = thread
        self._counts: Counter[str | None] = Counter()
        #: For each name what the latest caller was told: the cause, and the remedy.
        self._words: dict[str | None, str] = {}
        self.forget()

    def forget(self) -> None:
        self._due = math.inf
        self._counts.clear()
        self._words.clear()

    def count(self, refusal: TooManyWaiters) -> None:
        """Log *refusal* soon, with others of its kind. The caller owns the mutex."""
        if not self._counts:
            self._due = self._now() + PERIOD
        key = refusal.name if refusal.name in self._counts or len(self._counts) < NAMES else None
        self._counts[key] += 1
        self._words[key] = str(refusal)
        self._thread.wake_before(self._due)

    def take(self) -> list[tuple[int, str]]:
        """Return the counts and the words to log with them, and begin anew. The caller owns the mutex."""
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
        with self._section.mutex:
            refusals = self.take() if self._now() >= self._due else []
        log_refusals(refusals)
        yield from ()


def log_refusals(refusals: list[tuple[int, str]]) -> None:
    for count, words in refusals:
        logger.warning("%d refused at once: %s", count, words)


class DifferingLimits:
    """Logs once that callers name different limits for one semaphore, as while a site is deployed."""

    #: So many are remembered as logged. Names may be client data.
    MOST = 1000

    def __init__(self) -> None:
        self._logged: set[tuple[str, int, int]] = set()

    def compare(self, name: str, request: LockRequest, answer: Acquired) -> None:
        """Compare the limit of *request*, for permits of *name*, with the one that *answer* tells of."""
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
    """Return whether *error* refuses a caller whose time-out is certain, or expected.

    For `acquire` that is a time-out. A certain one is logged, for only the log names the line to change.
    """
    if isinstance(error, LockTimeout):
        logger.warning("%s", error)
        return True
    return isinstance(error, TooManyWaiters) and error.expected_wait is not None
