"""Acknowledging: a hold that came by a push lives for a window only, until the lock service confirms it.

A body may begin on the push. Whatever vouches for the lock awaits the confirmation: `Grant.check`, so each
guard's COMMIT, and the next grant of the hold. A release to the lock service does not, for it proves itself.
Bodies that last are confirmed by the keeper.
"""

from __future__ import annotations

from collections.abc import Callable

from distlock.backends.base import Backend
from distlock.backends.optional import HandsOver
from distlock.engine.call import Call
from distlock.engine.critical_section import CriticalSection
from distlock.engine.hold import Hold
from distlock.engine.loss import GIVEN_ON, Lose
from distlock.engine.room import Waiter
from distlock.engine.steps import Steps
from distlock.engine.turns import Turns
from distlock.modes import EXCLUSIVE
from distlock.reentrance import refusal


class Acknowledging:
    """*lose*: told of the holds that are not confirmed."""

    def __init__(
        self,
        section: CriticalSection,
        backend: Backend,
        now: Callable[[], float],
        turns: Turns,
        lose: Lose,
    ) -> None:
        self._section = section
        self._backend = backend if isinstance(backend, HandsOver) else None
        self._now = now
        self._turns = turns
        self._lose = lose

    def begin(self, waiter: Waiter) -> bool:
        """Grant the leader *waiter* what was handed over, if it may begin with that. Else it has to ask."""
        room, backend = waiter.room, self._backend
        if backend is None:
            return False
        with self._section.mutex:
            handed, room.handed = room.handed, None
            may = waiter.leads and waiter.terms.on_push and waiter.terms.seat is None
            may = may and waiter.terms.mode == EXCLUSIVE
            # To await a confirmation in `check` would stop an event loop.
            if handed is None or not may or waiter.gate.may_stall:
                return False
            ask, now = room.ask, self._now()
            if ask is None or ask.token != handed.token or now >= handed.sent + backend.window / 2:
                return False
            self._turns.take_handed(room, ask, handed, backend.window, now)
            return True

    def acknowledge(self, hold: Hold) -> Steps[None]:
        """Have *hold* confirmed, if it is not, or lost. Raises `BackendUnavailable`: neither is known."""
        if hold.acknowledged or hold.lost or self._backend is None:
            return
        if self._section.reentered():
            raise refusal()
        sent = self._now()
        if sent >= hold.deadline:
            return
        number = hold.first_number
        [ours] = yield Call(self._backend.acknowledge, [(hold.ask, number)], until=hold.deadline)
        if ours:
            with self._section.mutex:
                hold.renew(sent, hold.ask.ttl)
        elif hold.first_number == number:
            # Else it was lifted meanwhile, and is ours with another number.
            self._lose(hold, GIVEN_ON, retire=False)
