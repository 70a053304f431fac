"""Readers: those of one process share a hold, each with a grant of its own.

A reader that comes later joins at once, without asking anybody, for one turn after the sending of a request
that was answered with "nobody waits". After that it asks for a hold of its own, behind those who wait by
then, and the older one ends with its last reader. So a writer waits for a turn and the longest read, at most.
"""

from __future__ import annotations

import math

from distlock.backends.base import Ask
from distlock.engine.hold import Hold
from distlock.engine.keeper import Keeper
from distlock.engine.name_grant import Grantor, NameGrant
from distlock.engine.room import Room, Rooms, Waiter
from distlock.engine.steps import Gate
from distlock.modes import READ
from distlock.owner import Owner, current_owner
from distlock.terms import Terms


class Readers:
    """The engine calls it under its mutex. No I/O. The arguments are those of `Turns`."""

    def __init__(self, grantor: Grantor, rooms: Rooms, keeper: Keeper, era: int) -> None:
        self._grantor = grantor
        self._rooms = rooms
        self._keeper = keeper
        self._era = era

    def join(self, key: str, gate: Gate, timeout: float, terms: Terms, now: float) -> Waiter | None:
        """Let a reader in at once, where it needs to ask nobody; None: it has to stand in line."""
        room = self._rooms.by_key.get(key)
        if room is None:
            return None
        hold = _own(room, current_owner()) or self._open(room, terms, now)
        if hold is None:
            return None
        waiter = Waiter(room, gate, now, timeout, terms)
        self._admit(hold, waiter, now)
        return waiter

    def let_in(self, hold: Hold, now: float) -> None:
        """Let those in that are first in line, up to the first writer."""
        room = hold.room
        while (waiter := self._rooms.first(room)) is not None and waiter.terms.mode == READ:
            if waiter.terms.ttl != hold.ask.ttl and hold.readers:
                break  # A lease of another length is asked for.
            if not hold.readers:
                self._rooms.admission.granted(room, now, waiter.waited)
            self._admit(hold, waiter, now)
            self._rooms.leave(waiter)
            waiter.gate.wake()

    def share(self, hold: Hold, ask: Ask, grant: NameGrant, now: float) -> None:
        """*grant*, a writer's, is a reader's from now on, and the lock service knows *hold* by *ask*."""
        assert hold.waiter is not None
        grant.mode, grant._ends = READ, hold.since + hold.max_hold
        hold.admit(grant, hold.waiter)
        # From here on it is a reader's: `mend` does the rest if that is interrupted.
        hold.ask = ask
        self.open(hold)
        self.let_in(hold, now)
        self._rooms.settle(hold.room)

    def open(self, hold: Hold) -> None:
        """Others may have theirs beside *hold*, which was a writer's."""
        room = hold.room
        hold.grant = hold.waiter = hold.turning = None
        hold.max_hold = math.inf
        # Whether others wait was not said.
        hold.followed = True
        if hold not in room.shared:
            room.shared.append(hold)
        room.hold, room.busy = None, False
        self._keeper.look_at(hold)

    def end_hung(self, hold: Hold, now: float) -> list[NameGrant]:
        """Those that have read for too long are lost, and no others with them. Returns them, to be told."""
        hung = [grant for grant in hold.readers if grant._ends <= now]
        for grant in hung:
            hold.end_read(grant)
        hold.reads_end = min((grant._ends for grant in hold.readers), default=math.inf)
        return hung

    def _open(self, room: Room, terms: Terms, now: float) -> Hold | None:
        """The hold that any reader may join just now."""
        if room.queue or not room.shared:
            return None
        hold = room.shared[-1]
        if hold.followed or hold.release_requested or hold.ask.ttl != terms.ttl or hold.ask.mode != READ:
            return None
        return hold if now < min(hold.turn_ends, hold.deadline - hold.ask.ttl / 3) else None

    def _admit(self, hold: Hold, waiter: Waiter, now: float) -> None:
        grant = NameGrant(self._grantor, hold, hold.room.name, hold.fence(self._era), now, waiter.terms)
        grant._ends = now + waiter.terms.max_hold
        earlier = grant._ends < hold.reads_end
        hold.admit(grant, waiter)
        waiter.grant = grant
        if earlier and hold in self._keeper.holds:
            self._keeper.look_at(hold)


def _own(room: Room, owner: Owner) -> Hold | None:
    """A hold under which *owner* reads or writes already: behind others it would wait for itself."""
    for hold in room.holds:
        for grant in hold.grants:
            waiter = hold.waiter_of(grant)
            if waiter is not None and waiter.owner == owner and not (grant.released or grant.lost):
                return hold
    return None
