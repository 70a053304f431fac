"""How a caller gives its grant back: the hold goes to the next waiter here, or to the lock service."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from distlock.backends.base import Backend
from distlock.backends.optional import Posts
from distlock.engine.acknowledging import Acknowledging
from distlock.engine.call import Call
from distlock.engine.critical_section import CriticalSection
from distlock.engine.hold import Hold
from distlock.engine.keeper import Keeper
from distlock.engine.loss import Losses
from distlock.engine.name_grant import NameGrant
from distlock.engine.steps import Steps
from distlock.engine.turns import Turns
from distlock.errors import BackendUnavailable, Reentered
from distlock.reentrance import refusal

logger = logging.getLogger("distlock")


class Releasing:
    def __init__(
        self,
        section: CriticalSection,
        backend: Backend,
        now: Callable[[], float],
        turns: Turns,
        keeper: Keeper,
        acknowledging: Acknowledging,
        losses: Losses,
    ) -> None:
        self._section = section
        self._backend = backend
        self._posts = backend if isinstance(backend, Posts) else None
        self._now = now
        self._turns = turns
        self._keeper = keeper
        self._acknowledging = acknowledging
        self._losses = losses

    def release(self, grant: NameGrant, until: float = math.inf) -> Steps[None]:
        """Pass the hold on to the next waiter here, or give it back to the lock service.

        *until*: the moment after which the caller leaves that to the keeper.
        """
        if self._section.reentered():
            if grant.end():
                self.let_go(grant, refusal())
            return
        hold = grant._hold
        ours: bool | None = None
        try:
            if not hold.acknowledged and hold.room.queue and not grant.released:
                # The next grant is carved from what is confirmed. A release proves itself.
                with suppress(BackendUnavailable, Reentered):
                    yield from self._acknowledging.acknowledge(hold)
            with self._section.mutex:
                if self._section.left:
                    self._section.catch_up()
                if not grant.end():
                    return
                if hold.grant is grant and hold.room.hold is hold and not hold.readers:
                    if self._turns.pass_on(hold):
                        return
                elif not self._turns.ends_share(grant):
                    return
                self._turns.send_back(hold)
            try:
                if self._posts is None:
                    ours = yield Call(self._backend.release, hold.ask, until=until)
                else:
                    told = partial(self._answered, grant, hold)
                    yield Call(self._posts.post, hold.ask, told, until=until)
                    ours = True
            except Reentered:
                pass  # The keeper can.
            except BackendUnavailable as error:
                logger.warning(
                    "The lock %r will be released as soon as its lock service answers: %s", grant.name, error
                )
            with self._section.mutex:
                self._turns.returned(hold, ours)
                if ours and self._posts is not None:
                    self._keeper.await_answer()
        except BaseException as error:
            self.let_go(grant, error)
            raise
        if ours is False:
            self._losses.tell(grant, self._end_lost(grant, hold))

    def _answered(self, grant: NameGrant, hold: Hold, ours: bool | None) -> None:
        """The answer to a release that nobody waited for. *ours*: see `Posts.post`."""
        if ours is None:
            with self._section.mutex:
                self._keeper.retire(hold.ask)
        elif not ours:
            self._losses.tell_aside(grant, self._end_lost(grant, hold))

    def _end_lost(self, grant: NameGrant, hold: Hold) -> str:
        if self._now() >= hold.deadline:
            why = self._keeper.why_ended(hold)
        else:
            why = "the lock service had given it up before it was released"
        grant.end_lost(why)
        return why

    def let_go(self, grant: NameGrant, error: BaseException) -> None:
        """Release without I/O here: the keeper does it. For callers that *error* is tearing down."""
        self._section.undo(error, partial(self._turns.drop, grant))
