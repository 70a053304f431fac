"""Lifting: a fence that has fallen behind what a database remembers goes on above it, once, with an alarm.

That happens where the lock service has lost its data, or its clock was set back: its numbers begin again
below those that a database has seen, and without this nobody would pass the fence until they catch up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from distlock.backends.base import Backend, Held
from distlock.engine.acknowledging import Acknowledging
from distlock.engine.call import Call
from distlock.engine.critical_section import CriticalSection
from distlock.engine.loss import GIVEN_ON, Lose
from distlock.engine.name_grant import NameGrant
from distlock.engine.steps import Steps
from distlock.grant import Fence, Grant
from distlock.modes import READ
from distlock.reentrance import refusal

logger = logging.getLogger("distlock")

#: Told of each lifted fence: the grant, with its new fence, and what it was before. It should return soon.
OnLifted = Callable[[Grant, Fence], None]


class Lifting:
    """*lose*: told where the lock service says that a hold is not ours any more."""

    def __init__(
        self,
        section: CriticalSection,
        backend: Backend,
        now: Callable[[], float],
        acknowledging: Acknowledging,
        lose: Lose,
        on_lifted: OnLifted | None,
    ) -> None:
        self._section = section
        self._backend = backend
        self._now = now
        self._acknowledging = acknowledging
        self._lose = lose
        self._on_lifted = on_lifted

    def lift(self, grant: NameGrant, number: int) -> Steps[bool]:
        """Lift *grant* above *number*, if the lock service says that it still has the lock. Else False.

        The caller has had the fence row locked since it read *number* there. So the writer of *number* is
        no later holder: the lock has not passed on. Only once for each hold: a second, larger number means
        a later holder that is alive. Readers share what one of them was lifted to.
        """
        if self._section.reentered():
            raise refusal()
        hold = grant._hold

        def is_out() -> bool:
            return hold.is_out(grant) and not grant.released and not grant.lost

        with self._section.mutex:
            if not is_out():
                return False
            if hold.lifted:
                if grant.mode != READ or hold.first_number <= number:
                    return False
                grant._fence = hold.fence(grant.fence.era)
                return True
        # The script compares the token only.
        yield from self._acknowledging.acknowledge(hold)
        if hold.lost:
            return False
        sent = self._now()
        answer: Held | None = yield Call(self._backend.raise_floor, hold.ask, number)
        if answer is None:
            self._lose(hold, GIVEN_ON, retire=False)
            return False
        with self._section.mutex:
            if not is_out():
                return False
            was = grant.fence
            hold.lift(answer.number)
            hold.renew(sent, answer.ttl)
            grant._fence = hold.fence(was.era) if grant.mode == READ else hold.next_fence(was.era)
        self._tell(grant, was, number)
        return True

    def _tell(self, grant: NameGrant, was: Fence, number: int) -> None:
        logger.error(
            "The fence %d:%d of the lock %r was lifted to %d:%d, because a database has seen %d: has the "
            "lock service lost its data, or was its clock set back?",
            *was,
            grant.name,
            *grant.fence,
            number,
        )
        if self._on_lifted is not None:
            try:
                self._on_lifted(grant, was)
            except Exception:
                logger.exception("on_lifted failed for the lock %r.", grant.name)
