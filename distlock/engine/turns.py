"""Whose turn it is: a hold comes from the lock service, passes from caller to caller, and goes back.

G5 lives here: the order within a process is the room's, that of the processes the lock service's,
and how often and how long a hold passes from caller to caller before is the hold's.
"""

from __future__ import annotations

from distlock.backends.base import Ask, Held
from distlock.engine.hold import Hold
from distlock.engine.keeper import Keeper
from distlock.engine.name_grant import Grantor, NameGrant
from distlock.engine.room import Room, Rooms, Waiter
from distlock.engine.steps import Gate
from distlock.errors import BackendUnavailable, LockError


class Turns:
    """The engine calls it under its mutex. No I/O.

    *grantor*: where the grants go back to. *era*: that of their fences.
    """

    def __init__(self, grantor: Grantor, rooms: Rooms, keeper: Keeper, era: int) -> None:
        self._grantor = grantor
        self._rooms = rooms
        self._keeper = keeper
        self._era = era

    def take(self, room: Room, ask: Ask, held: Held, sent: float) -> None:
        """The lock service granted a hold: the leader gets the first grant of it."""
        first = room.queue[0]
        hold = Hold(room, ask, held.number, sent, held.ttl, first.terms.max_hold)
        if hold.deadline <= self._grantor.now():
            # The answer was longer under way than the lease: it is somebody else's by now.
            self._keeper.retire(ask)
            room.ask = None
            return
        # From here on the hold answers for the ask: `mend` finds it.
        room.hold = hold
        room.ask = None
        room.busy = True
        self._keeper.add(hold)
        self._grant(hold, first)

    def _grant(self, hold: Hold, waiter: Waiter) -> None:
        hold.waiter = waiter
        hold.since = self._grantor.now()
        if waiter.terms.max_hold != hold.max_hold:
            hold.max_hold = waiter.terms.max_hold
            self._keeper.look_at(hold)
        fence = hold.next_fence(self._era)
        hold.grant = NameGrant(self._grantor, hold, hold.room.name, fence, hold.since)
        self._deliver(hold, waiter)

    def _deliver(self, hold: Hold, waiter: Waiter) -> None:
        waiter.grant = hold.grant
        if waiter in waiter.room.queue:
            self._rooms.leave(waiter)
            if hold.grant is not None:
                self._rooms.admission.granted(hold.room, hold.grant.since, waiter.waited)

    def pass_on(self, hold: Hold) -> bool:
        """Give the next grant to the next waiter, if there is one and the turn is not over."""
        if not hold.room.queue or not hold.may_pass(self._grantor.now()):
            return False
        waiter = self._rooms.first(hold.room)
        if waiter is None or waiter.terms.ttl != hold.ask.ttl:
            # A lease of another length is asked for.
            return False
        self._grant(hold, waiter)
        waiter.gate.wake()
        return True

    def send_back(self, hold: Hold) -> None:
        """The hold is on its way back. The room stays busy, or we would queue behind ourselves."""
        hold.returning = True
        hold.room.hold = None
        self._keeper.holds.discard(hold)

    def returned(self, hold: Hold, ours: bool | None) -> None:
        """The hold is back at the lock service, or (*ours* is None) will be: the room is free."""
        if not hold.returning:
            return
        if ours is None:
            self._keeper.retire(hold.ask)
        self._keeper.holds.discard(hold)
        hold.returning = False
        if hold.room.hold is None:
            hold.room.busy = False
        self._rooms.settle(hold.room)

    def lose(self, hold: Hold, why: str, retire: bool) -> NameGrant | None:
        """The hold is not ours any more: the waiters start anew. Returns the grant that is to be told."""
        if hold.lost or hold.room.hold is not hold:
            return None
        hold.lost = why
        self._keeper.holds.discard(hold)
        if retire:
            self._keeper.retire(hold.ask)
        hold.room.hold = None
        hold.room.busy = False
        self._rooms.settle(hold.room)
        return hold.grant

    def drop(self, grant: NameGrant) -> None:
        """End *grant* without I/O here, wherever its release was interrupted. A second time does nothing."""
        grant.end()
        hold = grant._hold
        if hold.room.hold is hold:
            self.mend(hold.room)
        elif hold.returning and hold.is_out(grant):
            self.returned(hold, None)

    def abandon(self, key: str, gate: Gate, error: BaseException) -> None:
        """Leave nothing behind of the caller with *gate*, which *error* interrupted."""
        if (room := self._rooms.by_key.get(key)) is None:
            return
        if not isinstance(error, LockError):
            self.mend(room)
        hold = room.hold
        if hold and hold.grant and hold.waiter and hold.waiter.gate is gate:
            self.drop(hold.grant)
        waiter = next((one for one in room.queue if one.gate is gate), None)
        if waiter is None:
            return
        if waiter.leads and room.ask is not None:
            # What became of the request is unknown. The token dies with it.
            self._keeper.retire(room.ask)
            room.ask = None
        self._rooms.leave(waiter)
        if isinstance(error, BackendUnavailable):
            # The others would each find out after a time-out of their own, one after the other.
            self._rooms.fail(room, str(error))
        self._rooms.settle(room)

    def mend(self, room: Room) -> None:
        """Put *room* right, where somebody may have been interrupted in the middle of a change to it."""
        hold = room.hold
        if hold is not None:
            room.busy = True
            if room.ask is hold.ask:
                room.ask = None
            if hold.grant is None or hold.grant.released:
                # Nobody has it, and nobody ever would.
                if not self.pass_on(hold):
                    self.send_back(hold)
                    self.returned(hold, None)
            elif hold.waiter is not None and (
                hold.waiter in room.queue or hold.waiter.grant is not hold.grant
            ):
                self._deliver(hold, hold.waiter)
                hold.waiter.gate.wake()
        self._rooms.recount()
        self._rooms.settle(room)
