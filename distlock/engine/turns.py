"""Whose turn it is: a hold comes from the lock service, passes from caller to caller, and goes back.

G5 lives here: the order within a process is the room's, that of the processes the lock service's,
and how often and how long a hold passes from caller to caller before is the hold's.
"""

from __future__ import annotations

import math

from distlock.backends.base import Ask, Held
from distlock.engine.hold import Hold
from distlock.engine.keeper import Keeper
from distlock.engine.name_grant import Grantor, NameGrant
from distlock.engine.permit_grant import PermitGrant
from distlock.engine.readers import Readers
from distlock.engine.room import Handed, Room, Rooms, Waiter
from distlock.engine.steps import Gate
from distlock.errors import BackendUnavailable, LockError
from distlock.modes import EXCLUSIVE, READ


class Turns:
    """The engine calls it under its mutex. No I/O.

    *grantor*: where the grants go back to. *era*: that of their fences.
    """

    def __init__(self, grantor: Grantor, rooms: Rooms, keeper: Keeper, readers: Readers, era: int) -> None:
        self._readers = readers
        self._grantor = grantor
        self._now = grantor.now
        self._rooms = rooms
        self._keeper = keeper
        self._era = era

    def take(self, room: Room, ask: Ask, held: Held, sent: float) -> None:
        """The lock service granted a hold: the leader gets the first grant of it."""
        first = room.queue[0]
        hold = Hold(room, ask, held.number, sent, held.ttl, first.terms.max_hold)
        hold.followed = held.followed
        now = self._now()
        if hold.deadline <= now:
            # The answer was longer under way than the lease: it is somebody else's by now.
            self._keeper.retire(ask)
            room.ask = None
            return
        self._take(hold, first, now)

    def take_handed(self, room: Room, ask: Ask, handed: Handed, window: float, now: float) -> None:
        """The leader begins with a hold that a push has handed over, and that is worth *window* seconds."""
        first = room.queue[0]
        hold = Hold.handed(room, ask, handed.number, handed.sent, window, first.terms.max_hold, now)
        self._take(hold, first, now)

    def _take(self, hold: Hold, first: Waiter, now: float) -> None:
        if hold.ask.mode != EXCLUSIVE:
            self._take_share(hold, first, now)
            return
        room = hold.room
        # From here on the hold answers for the ask: `mend` finds it.
        room.hold = hold
        room.ask = None
        room.busy = True
        self._keeper.add(hold)
        self._grant(hold, first, now)

    def _take_share(self, hold: Hold, first: Waiter, now: float) -> None:
        """Others may have theirs beside it: who is next asks at once."""
        room = hold.room
        room.shared.append(hold)
        room.ask = None
        self._keeper.add(hold)
        if hold.ask.mode == READ:
            # Each reader has a limit of its own.
            hold.max_hold = math.inf
            self._readers.let_in(hold, now)
        else:
            self._grant(hold, first, now, PermitGrant)
        self._rooms.settle(room)

    def _grant(self, hold: Hold, waiter: Waiter, now: float, kind: type[NameGrant] = NameGrant) -> None:
        hold.waiter = waiter
        hold.since = now
        if waiter.terms.max_hold != hold.max_hold:
            hold.max_hold = waiter.terms.max_hold
            self._keeper.look_at(hold)
        hold.grant = kind(self._grantor, hold, hold.room.name, hold.next_fence(self._era), now, waiter.terms)
        self._deliver(hold.grant, waiter)

    def _deliver(self, grant: NameGrant, waiter: Waiter) -> None:
        waiter.grant = grant
        if waiter in waiter.room.queue:
            self._rooms.leave(waiter)
            self._rooms.admission.granted(waiter.room, grant.since, waiter.waited)

    def pass_on(self, hold: Hold) -> bool:
        """Give the next grant to the next waiter, if there is one and the turn is not over."""
        if not hold.room.queue or not hold.may_pass(now := self._now()):
            return False
        waiter = self._rooms.first(hold.room)
        if waiter is None or waiter.terms.ttl != hold.ask.ttl or waiter.terms.mode != EXCLUSIVE:
            # A lease of another length is asked for, or to read, which others may do then, too.
            return False
        self._grant(hold, waiter, now)
        waiter.gate.wake()
        return True

    def ends_share(self, grant: NameGrant) -> bool:
        """*grant* has ended, beside others. Whether its hold is to be sent back: no other uses it."""
        hold = grant._hold
        # A writer's own reads keep its hold, too.
        if not hold.end_read(grant) and hold.grant is not grant:
            return False
        if hold.is_used:
            if hold.grant is grant and hold in self._keeper.holds:
                # Without its writer's limit it may be due for a renewal earlier.
                self._keeper.look_at(hold)
            return False
        if hold.room.hold is hold:
            return not self.pass_on(hold)
        return hold in hold.room.shared

    def send_back(self, hold: Hold) -> None:
        """The hold is on its way back. The room stays busy, or we would queue behind ourselves."""
        hold.returning = True
        if hold.room.hold is hold:
            hold.room.hold = None
        else:
            hold.room.shared.remove(hold)
        self._keeper.holds.discard(hold)

    def returned(self, hold: Hold, ours: bool | None) -> None:
        """The hold is back at the lock service, or (*ours* is None) will be: the room is free."""
        if not hold.returning:
            return
        if ours is None or hold.ask.unanswered:
            self._keeper.retire(hold.ask)
        if hold.turning is not None:
            self._keeper.retire(hold.turning)
        self._keeper.holds.discard(hold)
        hold.returning = False
        if hold.waiter is not None:
            # They know of each other, and that would keep all of them until garbage is collected.
            hold.grant = hold.waiter.grant = None
        room = hold.room
        if room.hold is None and hold.ask.mode == EXCLUSIVE:
            room.busy = False
        self._rooms.settle(room)

    def lose(self, hold: Hold, why: str, retire: bool) -> list[NameGrant]:
        """The hold is not ours any more: the waiters start anew. Returns the grants that are to be told."""
        room = hold.room
        if hold.lost or hold not in room.holds:
            return []
        hold.lost = why
        self._keeper.holds.discard(hold)
        if retire or hold.ask.unanswered:
            self._keeper.retire(hold.ask)
        if hold.turning is not None:
            self._keeper.retire(hold.turning)
        if room.hold is hold:
            room.hold = None
            room.busy = False
        else:
            room.shared.remove(hold)
        self._rooms.settle(room)
        return [grant for grant in hold.grants if not grant.released]

    def end_hung(self, hold: Hold) -> list[NameGrant]:
        """See `Readers.end_hung`. A hold without readers goes back."""
        hung = self._readers.end_hung(hold, self._now())
        if hung and hold in hold.room.holds:
            self.mend(hold.room)
        return hung

    def drop(self, grant: NameGrant) -> None:
        """End *grant* without I/O here, wherever its release was interrupted. A second time does nothing."""
        grant.end()
        hold = grant._hold
        if hold in hold.room.holds:
            self.mend(hold.room)
        elif hold.returning and (hold.is_out(grant) or grant.mode == READ):
            self.returned(hold, None)

    def abandon(self, key: str, gate: Gate, error: BaseException) -> None:
        """Leave nothing behind of the caller with *gate*, which *error* interrupted."""
        if (room := self._rooms.by_key.get(key)) is None:
            return
        if not isinstance(error, LockError):
            self.mend(room)
        for hold in room.holds:
            for grant in hold.grants:
                if (mine := hold.waiter_of(grant)) is not None and mine.gate is gate:
                    self.drop(grant)
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
        for hold in room.holds:
            room.busy = room.busy or room.hold is hold
            if room.hold is hold and hold.ask.mode == READ:
                self._readers.open(hold)
            if room.ask is hold.ask:
                room.ask = None
            for grant in hold.grants:
                self._mend(hold, grant)
            if hold.is_used:
                if hold not in self._keeper.holds:
                    self._keeper.add(hold)
                elif hold.readers:
                    self._keeper.look_at(hold)  # its writer may be gone, and the limit with it
            elif room.hold is not hold or not self.pass_on(hold):
                # Nobody has it, and nobody ever would.
                self.send_back(hold)
                self.returned(hold, None)
        self._rooms.recount()
        self._rooms.settle(room)

    def _mend(self, hold: Hold, grant: NameGrant) -> None:
        waiter = hold.waiter_of(grant)
        if grant.released:
            hold.end_read(grant)
        elif waiter is not None and (waiter in waiter.room.queue or waiter.grant is not grant):
            self._deliver(grant, waiter)
            waiter.gate.wake()
