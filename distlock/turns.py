"""Whose turn it is: a hold comes from the service, passes from caller to caller, and goes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlock.backends.base import Ask, Held
from distlock.grant import NameGrant
from distlock.hold import Hold
from distlock.room import Room, Waiter

if TYPE_CHECKING:
    from distlock.engine import Engine


class Turns:
    """The engine calls it under its mutex. No I/O."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def returned(self, hold: Hold, ours: bool | None) -> None:
        """The hold is back at the service, or will be: the room is free."""
        if ours is None:
            self._engine.keeper.retire(hold.ask)
        hold.room.busy = False
        self._engine.rooms.settle(hold.room)

    def take(self, room: Room, ask: Ask, held: Held, sent: float) -> None:
        """The service granted a hold: the leader gets the first grant of it."""
        room.ask = None
        hold = Hold(room, ask, held.fence, sent, held.ttl)
        if hold.deadline <= self._engine.now():
            # The answer was longer under way than the lease: it is somebody else's by now.
            self._engine.keeper.retire(ask)
            return
        room.hold = hold
        room.busy = True
        self._engine.keeper.add(hold)
        self._grant(hold, room.queue[0])

    def _grant(self, hold: Hold, waiter: Waiter) -> None:
        waiter.grant = grant = hold.carve(self._engine)
        self._engine.rooms.leave(waiter)
        self._engine.rooms.admission.granted(hold.room, grant.since, waiter.waited)

    def pass_on(self, hold: Hold) -> bool:
        room = hold.room
        waiter = self._engine.rooms.first(room) if hold.may_pass(self._engine.now()) else None
        if waiter is None:
            return False
        self._grant(hold, waiter)
        waiter.gate.wake()
        return True

    def drop(self, grant: NameGrant) -> None:
        if not grant.end():
            return
        hold = grant._hold
        room = hold.room
        if room.hold is not hold or self.pass_on(hold):
            return
        self._engine.keeper.discard(hold)
        room.hold = None
        self.returned(hold, None)
