"""The published status of this process: who holds what here, who waits here, and for how long.

Every few seconds, the maintenance thread publishes the holds and waits that have lasted longer than `MOMENT`;
acquiring and releasing do no work for this. The same thread looks up who holds the names that callers here
wait for. So the error of a time-out can name the holder without a round trip.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from distlock import signal_safety
from distlock.backends.base import Backend, refuse_lacking
from distlock.backends.inspectable import (
    MOMENT,
    Announces,
    Breaks,
    Inspectable,
    KeyState,
    SeenProcess,
    StatusRow,
    inspectable,
    reading,
)
from distlock.backends.protocols import Notifies
from distlock.engine.critical_section import CriticalSection
from distlock.engine.sans_io import Call, Commands
from distlock.engine.wait_queue import WaitQueue
from distlock.engine.wait_queues import WaitQueues
from distlock.errors import LockError
from distlock.terms import EXCLUSIVE, PERMIT, READ, Mode, shown_where

logger = logging.getLogger("distlock")

#: Seconds between two publications; more if there are many wait queues.
PUBLISH_PERIOD = 2.0
#: Published status expires after this many periods.
LIFE = 4
#: The share of a processor that computing the rows may use.
ROWS_CPU_SHARE = 0.02
#: The most keys of one publication. After publications that took too long, the limit falls to `LEAST_KEYS`.
MOST_KEYS, LEAST_KEYS = 10_000, 500
#: How many seconds one publication may take, because the same thread renews holds.
PUBLISH_TIMEOUT = 0.5
#: How many holders are looked up after one publication.
MOST_LOOKED_UP = 20


class Inspection:
    """The calls by which an operator inspects or ends locks on the lock service."""

    def __init__(self, section: CriticalSection, backend: Backend) -> None:
        self._section = section
        self._backend = backend

    @property
    def process(self) -> str:
        """The name of this process on the lock service."""
        return self._inspectable().process

    def inspect(self, key: str) -> KeyState:
        """Return the holders and waiters of *key*. Asks the lock service."""
        state: KeyState = signal_safety.call(partial(_inspect, self._inspectable()), key)
        return state

    def announced(self, before: str) -> Iterator[SeenProcess]:
        """Return the status that all processes publish for the keys that begin with *before*."""
        return _read(self._inspectable().announced(before))

    def break_hold(self, key: str, number: int) -> bool:
        """See `distlock.backends.inspectable.Breaks`."""
        backend = self._inspectable()
        refuse_lacking(backend, backend.capabilities, "breaks", "A break")
        assert isinstance(backend, Breaks)
        broken: bool = signal_safety.call(backend.break_hold, key, number)
        return broken

    def request_release(self, key: str) -> bool:
        """Ask every holder of *key* to release it. Return False if nobody holds it."""
        if self._section.reentered():
            raise signal_safety.refusal()
        backend = self._backend
        refuse_lacking(backend, backend.capabilities, "notify", "request_release()")
        assert isinstance(backend, Notifies)
        held: bool = signal_safety.call(backend.request_release, key)
        return held

    def _inspectable(self) -> Inspectable:
        """Return the backend. Raises `ConfigurationError` if it can't show holders and waiters."""
        if self._section.reentered():
            raise signal_safety.refusal()
        backend = self._backend
        refuse_lacking(backend, backend.capabilities, "inspect", "A look at the locks")
        assert isinstance(backend, Inspectable)
        return backend


def _inspect(backend: Inspectable, key: str, deadline: float = math.inf) -> KeyState:
    with reading("What the lock service has of the lock"):
        return backend.inspect(key, deadline)


def _read(announced: Iterator[SeenProcess]) -> Iterator[SeenProcess]:
    with reading("The status that a process published"):
        yield from announced


class StatusPublisher:
    def __init__(
        self, section: CriticalSection, backend: Backend, now: Callable[[], float], queues: WaitQueues
    ) -> None:
        self._section = section
        seen = inspectable(backend)
        self._backend = seen if isinstance(seen, Announces) else None
        self._now = now
        self._queues = queues
        #: Returns the rows of latches, which have no wait queue. Its argument is the *at_epoch* of `row_of`.
        self.more_rows: Callable[[float], list[StatusRow]] = lambda at_epoch: []
        self.forget()

    def forget(self) -> None:
        """Set the state of a process that has published nothing: at first, or after an outage or a fork."""
        #: The published row of each key; None: it is unknown which row is published, if any.
        self._published: dict[str, StatusRow | None] = {}
        #: The state of the keys that callers here wait for, as of the latest look.
        self._states: dict[str, KeyState] = {}
        #: Since when publications have failed; ``inf``: the latest one did not fail.
        self._failed_since = math.inf
        #: How many keys the next publication has at most.
        self._many = MOST_KEYS
        # The next publication may be at any time.
        self._plan(0.0)
        self._period = PUBLISH_PERIOD
        #: What to add to the engine's time to get seconds since 1970.
        self._at_epoch = 0.0

    def _plan(self, moment: float) -> None:
        self._next = moment
        if self._backend is not None:
            self._queues.renewer.next_publication = moment

    def last_state(self, key: str) -> KeyState | None:
        """Return the state of *key* as of the latest look; None: it was not looked up. Does no I/O."""
        return self._states.get(key)

    def soon(self, now: float) -> float:
        """Return when a wait that begins now may have to be published. The caller owns the mutex."""
        return math.inf if self._backend is None else max(self._next, now + MOMENT)

    def due(self, now: float) -> float:
        if self._backend is None or not (self._published or self._queues.by_key or self.more_rows(0.0)):
            return math.inf
        return self._next if self._published else max(self._next, now + MOMENT)

    def is_idle(self) -> bool:
        return not self._published

    def tick(self, until: Callable[[], float]) -> Commands[None]:
        """Publish the status if that is due and the lock service answers."""
        if self._backend is None:
            return
        renewer = self._queues.renewer
        if renewer.failed_call_took and renewer.holds:
            # The lock service does not answer, so wait for another period.
            self._plan(max(self._next, self._now() + self._period))
        elif self._now() >= self._next:
            with self._section.mutex:
                due = until()
            yield from self._publish(self._backend, due)

    def _publish(self, backend: Announces, until: float) -> Commands[None]:
        began = self._now()
        with self._section.mutex:
            queues = list(self._queues.by_key.values())
        if not queues and not self._published and not self.more_rows(0.0):
            return
        rows, waits = self._rows(queues, began)
        news = [row for key, row in rows.items() if self._published.get(key) != row]
        gone = [key for key in self._published if key not in rows]
        # The longer it takes to compute the rows, the longer is the pause.
        self._period = max(PUBLISH_PERIOD, (self._now() - began) / ROWS_CPU_SHARE)
        self._plan(self._now() + self._period)
        if not rows:
            self._states = {}
            if not gone:
                return
        life = LIFE * self._period
        if not rows and began >= self._failed_since + life:
            # What was published has expired by now.
            self.forget()
            return
        until = min(until, self._now() + PUBLISH_TIMEOUT)
        if self._now() >= until:
            # A call without time left would fail, and cost its connection.
            return
        many = min(MOST_KEYS, self._many)
        all_of_it = len(news) <= many and len(gone) <= many
        news, gone = news[:many], gone[:many]
        ttl = max((hold.request.ttl for queue in queues for hold in list(queue.holds)), default=0.0)
        announce = partial(backend.announce, lease=ttl)
        try:
            goes_on = yield Call(announce, socket.gethostname(), os.getpid(), news, gone, life, until=until)
        except Exception as error:
            # Catch any error: no lock depends on the status, and renewals must go on.
            if not isinstance(error, LockError):
                logger.warning("The status of this process could not be published: %r", error, exc_info=True)
            self._note_failure(news, began, until)
            return
        self._failed_since = math.inf
        if all_of_it:
            # Raise the limit only when everything is published: after a failure, that takes several times.
            self._many = 2 * many
        dropped = set(gone)
        kept = {key: row for key, row in self._published.items() if key not in dropped}
        # If earlier rows had expired (not *goes_on*), the next publications repeat them.
        self._published = {**(kept if goes_on else {}), **{row.key: row for row in news}}
        yield from self._look_up_holders(backend, waits, until)

    def _rows(self, queues: Sequence[WaitQueue], now: float) -> tuple[dict[str, StatusRow], list[StatusRow]]:
        """Return the rows to publish, by key, and a list of the rows of *queues* alone, without latches.

        Called without the mutex: for a hundred thousand queues, it would be held for too long. A change that
        comes meanwhile is published next time.
        """
        at_epoch = time.time() - now
        if abs(at_epoch - self._at_epoch) > 1.0:
            # Ignore smaller drifts of the clocks, because each would change all rows.
            self._at_epoch = at_epoch
        rows = {row.key: row for queue in queues if (row := row_of(queue, now, self._at_epoch)) is not None}
        waits = list(rows.values())
        rows |= {row.key: row for row in self.more_rows(self._at_epoch)}
        return rows, waits

    def _note_failure(self, news: Sequence[StatusRow], began: float, until: float) -> None:
        # It is unknown which rows have arrived. So send all rows again, and withdraw those that have ended.
        self._published = dict.fromkeys([*self._published, *(row.key for row in news)])
        self._failed_since = min(self._failed_since, began)
        if self._now() >= until:
            self._many = max(LEAST_KEYS, min(MOST_KEYS, self._many) // 4)

    def _look_up_holders(self, backend: Announces, rows: Iterable[StatusRow], until: float) -> Commands[None]:
        """Look up the holders of those *rows* that another process holds, the longest wait first."""
        elsewhere = (row for row in rows if row.waiting and not row.held_since)
        states = {}
        for row in islice(sorted(elsewhere, key=lambda one: one.waiting_since), MOST_LOOKED_UP):
            if self._now() >= until:
                break
            try:
                states[row.key] = yield Call(partial(_inspect, backend), row.key, until=until)
            except Exception as error:
                # Catch any error: no lock depends on this look, and renewals must go on.
                if not isinstance(error, LockError):
                    logger.warning("The holder of a lock could not be looked up: %r", error, exc_info=True)
                break
        self._states = states


def row_of(queue: WaitQueue, now: float, at_epoch: float, moment: float = MOMENT) -> StatusRow | None:
    """Return the row to publish for *queue*; None: no hold or wait there has lasted for *moment* seconds.

    *at_epoch*: what to add to the engine's time to get seconds since 1970.
    """
    held_at, held_since, waits_at, waiting_since, waiting = "", 0.0, "", 0.0, 0
    mode: Mode = EXCLUSIVE
    holding, limit = 0, 0
    holds = list(queue.holds)
    grants = [grant for hold in holds for grant in hold.grants]
    eldest = min(grants, key=lambda grant: grant.since, default=None)
    if eldest is not None and now - eldest.since >= moment:
        held_at, held_since = shown_where(eldest.where), round(eldest.since + at_epoch, 1)
        mode = eldest.mode
        if mode == READ:
            holding = len(grants)
        elif mode == PERMIT:
            holding, limit = sum(hold.request.permits for hold in holds), holds[-1].request.limit
    try:
        first = queue.waiters[0]
    except IndexError:
        first = None
    if first is not None and now - first.came >= moment:
        waits_at, waiting_since = shown_where(first.options.where), round(first.came + at_epoch, 1)
        waiting = len(queue.waiters)
        if first.options.mode == PERMIT:
            limit = limit or first.options.limit
    if not held_since and not waiting:
        return None
    return StatusRow(queue.key, held_at, held_since, waiting, waits_at, waiting_since, mode, holding, limit)
