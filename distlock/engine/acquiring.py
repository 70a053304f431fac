"""How a caller gets a grant: it stands in line, leads or waits to be woken, and leaves in time.

G3 lives here: every wait has an end, unless the caller asked for no limit. The keeper ends the hold of a
holder that hangs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

from distlock.backends.base import Backend, Held, Queued
from distlock.backends.optional import Hears
from distlock.engine.acknowledging import Acknowledging
from distlock.engine.critical_section import CriticalSection
from distlock.engine.keeper import Keeper
from distlock.engine.leading import LAST_WORDS, Leading
from distlock.engine.name_grant import NameGrant
from distlock.engine.readers import Readers
from distlock.engine.releasing import Releasing
from distlock.engine.room import Rooms
from distlock.engine.stalled import Stalled
from distlock.engine.steps import Gate, Park, Steps
from distlock.engine.turns import Turns
from distlock.errors import BackendUnavailable, TooManyWaiters
from distlock.modes import READ
from distlock.reentrance import refusal
from distlock.terms import Terms

#: How long a caller that asks once stands in line for the answers to others, seconds, where none comes: the
#: event loop of one that asks may stand still.
BESIDE = 1.0


class Acquiring:
    def __init__(
        self,
        section: CriticalSection,
        backend: Backend,
        now: Callable[[], float],
        rooms: Rooms,
        turns: Turns,
        readers: Readers,
        leading: Leading,
        acknowledging: Acknowledging,
        stalled: Stalled,
        keeper: Keeper,
        releasing: Releasing,
    ) -> None:
        self._section = section
        self._hear = backend.wait if isinstance(backend, Hears) else None
        self._now = now
        self._rooms = rooms
        self._turns = turns
        self._readers = readers
        self._leading = leading
        self._acknowledging = acknowledging
        self._stalled = stalled
        self._keeper = keeper
        self._releasing = releasing
        #: Why no caller is let in.
        self.closed: str | None = None

    def acquire(
        self, key: str, name: str, gate: Gate, timeout: float, terms: Terms
    ) -> Steps[NameGrant | None]:
        """Wait up to *timeout* seconds (0: not at all) for a grant, or return None."""
        if self._section.reentered():
            if key in self._rooms.by_key and not timeout > 0:
                return None
            raise refusal()
        asked_at = self._now()
        deadline = asked_at + timeout
        # A caller that does not wait asks once. The backend bounds that.
        until = deadline + LAST_WORDS if timeout > 0 else math.inf
        try:
            with self._section.mutex:
                if self._section.left:
                    self._section.catch_up()
                if self.closed is not None:
                    raise BackendUnavailable(self.closed)
                waiter = None
                if terms.mode == READ:
                    waiter = self._readers.join(key, gate, timeout, terms, asked_at)
                if waiter is None:
                    try:
                        waiter = self._rooms.enter(key, name, gate, timeout, terms, asked_at)
                    except TooManyWaiters as refused:
                        self._keeper.count(refused)
                        raise
                    if waiter is None:
                        return None
                if gate.may_stall and deadline != math.inf:
                    self._keeper.thread.wake_before(self._stalled.watch(waiter))
            asked = False
            while waiter.grant is None:
                if waiter.failure is not None:
                    raise BackendUnavailable(waiter.failure)
                pause = deadline - self._now()
                if pause <= 0 and (asked or timeout > 0):
                    yield from self._leading.leave(waiter, until)
                    break
                if waiter.leads:
                    if waiter.room.handed is not None and self._acknowledging.begin(waiter):
                        break
                    answer = yield from self._leading.ask(waiter, timeout > 0, until)
                    asked = True
                    if isinstance(answer, Held):
                        continue
                    if not isinstance(answer, Queued):
                        break
                    pause = min(pause, answer.poll)
                elif waiter.asks_once:
                    pause += BESIDE
                    if waiter.passed_over:
                        break
                    if pause <= 0:
                        yield from self._leading.leave(waiter, until)
                        break
                if not waiter.waited:
                    self._leading.refuse_behind_own(waiter)
                    waiter.waited = True
                elif waiter.leads:
                    with self._section.mutex:
                        self._keeper.announce_soon()
                yield Park(gate, pause, self._hear if waiter.leads else None)
        except TooManyWaiters:
            raise
        except BaseException as error:
            self.forsake([key], gate, error)
            raise
        if gate.may_stall:
            with self._section.mutex:
                self._stalled.answered(waiter)
                if waiter.passed_over:
                    return None
        grant = waiter.grant
        if not waiter.waited or grant is None or not grant.lost:
            return grant
        if terms.seat is not None and terms.seat.batch is not None:
            # A batch answers for those that it takes along, and looks at the lock before its COMMIT.
            return grant
        # We slept (a stopped process, a long pause) until after the end of what we were granted meanwhile.
        yield from self._releasing.release(grant, until)
        left = max(0.0, deadline - self._now())
        return (yield from self.acquire(key, name, gate, left, terms)) if left else None

    def forsake(self, keys: Iterable[str], gate: Gate, error: BaseException) -> None:
        """The caller behind *gate* was interrupted, or the service failed: leave nothing of it behind.

        No I/O, for we may be torn down.
        """
        for key in keys:
            self._section.undo(error, partial(self._abandon, key, gate, error))

    def _abandon(self, key: str, gate: Gate, error: BaseException) -> None:
        self._stalled.forget(gate)
        self._turns.abandon(key, gate, error)
