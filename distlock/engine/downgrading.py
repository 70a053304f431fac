"""Downgrading: a writer goes on as a reader, and no other writer comes between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from distlock.backends.base import Backend, refuse_lacking
from distlock.backends.shared import Reads
from distlock.engine.acknowledging import Acknowledging
from distlock.engine.call import Call
from distlock.engine.critical_section import CriticalSection
from distlock.engine.hold import Hold
from distlock.engine.keeper import Keeper
from distlock.engine.loss import GIVEN_ON, Lose
from distlock.engine.name_grant import NameGrant
from distlock.engine.readers import Readers
from distlock.engine.steps import Steps
from distlock.engine.turns import Turns
from distlock.errors import ConfigurationError
from distlock.modes import EXCLUSIVE, READ
from distlock.reentrance import refusal


class Downgrading:
    """*lose*: told where the lock service says that a hold is not ours any more."""

    def __init__(
        self,
        section: CriticalSection,
        backend: Backend,
        now: Callable[[], float],
        turns: Turns,
        readers: Readers,
        keeper: Keeper,
        acknowledging: Acknowledging,
        lose: Lose,
    ) -> None:
        self._section = section
        self._backend = backend
        self._now = now
        self._turns = turns
        self._readers = readers
        self._keeper = keeper
        self._acknowledging = acknowledging
        self._lose = lose

    def downgrade(self, grant: NameGrant) -> Steps[None]:
        """Turn *grant*, a writer's, into a reader's: see `distlock.grant.Grant.downgrade`."""
        if self._section.reentered():
            raise refusal()
        backend, hold = self._backend, grant._hold
        refuse_lacking(backend, backend.capabilities, "read", "downgrade()")
        assert isinstance(backend, Reads)
        if grant._terms.mode != EXCLUSIVE:
            raise ConfigurationError(
                f"The {grant.shown()} can't be downgraded: only a write lock can. Take it by "
                "locks.write_lock(…) first."
            )
        try:
            yield from self._downgrade(backend, hold, grant)
        except BaseException as error:
            self._section.undo(error, partial(self._turns.mend, hold.room))
            raise

    def _downgrade(self, backend: Reads, hold: Hold, grant: NameGrant) -> Steps[None]:
        yield from self._acknowledging.acknowledge(hold)
        grant.check()
        with self._section.mutex:
            ask, begins = hold.ask, _writes(grant)
            if begins and hold.turning is None:
                # From here on it goes to no other writer here: the lock service may let readers in.
                hold.turning = replace(ask, mode=READ)
            turned = hold.turning
        if not begins or turned is None:
            # A reader's already: another call was first. Or it was released, or lost.
            grant.check()
            return
        ours: bool = yield Call(backend.downgrade, ask, until=hold.deadline)
        if not ours:
            self._lose(hold, GIVEN_ON, retire=False)
        with self._section.mutex:
            if ours and _writes(grant):
                self._readers.share(hold, turned, grant, self._now())
                return
            if hold.ask is not turned:
                # It was released meanwhile, or lost. What that gave back may not have been turned yet.
                # Where another call was first, the reader lives on *turned*, and takes it back itself.
                self._keeper.retire(turned)
        grant.check()


def _writes(grant: NameGrant) -> bool:
    """Whether it has its hold as a writer still."""
    hold = grant._hold
    return hold.grant is grant and hold.room.hold is hold and not grant.released
