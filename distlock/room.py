"""The waiting room: this process's waiters for one name, first come first served.

The process, not a waiter, is the one contender outside. The waiter at the head of the room *leads*: it
asks the lock service on behalf of all. When it gives up, the next one takes over its place in the
service's queue.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from distlock.backends.base import Ask
from distlock.errors import TooManyWaiters
from distlock.steps import Gate

if TYPE_CHECKING:
    from distlock.grant import NameGrant
    from distlock.hold import Hold


class Waiter:
    __slots__ = ("failure", "gate", "grant", "leads", "room")

    def __init__(self, room: Room, gate: Gate) -> None:
        self.room = room
        self.gate = gate
        self.leads = False
        self.grant: NameGrant | None = None
        #: Why the leader failed for all of us.
        self.failure: str | None = None


class Room:
    __slots__ = ("ask", "busy", "hold", "key", "name", "queue")

    def __init__(self, key: str, name: str) -> None:
        self.key = key
        self.name = name
        self.queue: deque[Waiter] = deque()
        #: What the service may know of us while we wait. It outlives a leader, not a hold.
        self.ask: Ask | None = None
        #: There is a hold, or one is on its way back: nobody leads.
        self.busy = False
        self.hold: Hold | None = None

    def wake_leader(self) -> None:
        """It is worth asking the service again."""
        if self.queue and self.queue[0].leads:
            self.queue[0].gate.wake()


class Rooms:
    """All waiting rooms of a client. The engine calls it under its mutex."""

    def __init__(self, max_waiters: int, max_waiters_total: int) -> None:
        self.max_waiters = max_waiters
        self.max_waiters_total = max_waiters_total
        self.by_key: dict[str, Room] = {}
        self.waiting = 0

    def enter(self, key: str, name: str, gate: Gate, patient: bool) -> Waiter | None:
        """Stand in line. None for the impatient where there is a line. Raises `TooManyWaiters`."""
        room = self.by_key.get(key)
        if room is not None:
            self.settle(room)
            room = self.by_key.get(key)
        if room is None:
            room = self.by_key[key] = Room(key, name)
        elif not patient:
            # Somebody of this process holds it or waits for it: not waiting means not passing them.
            return None
        else:
            self._admit(room)
        waiter = Waiter(room, gate)
        waiter.leads = not room.busy and not room.queue
        room.queue.append(waiter)
        self.waiting += 1
        return waiter

    def _admit(self, room: Room) -> None:
        """Shed overload. Who finds a name unused by this process always may ask for it."""
        if len(room.queue) >= self.max_waiters:
            waiting, limit = len(room.queue), f"max_waiters={self.max_waiters}"
        elif self.waiting >= self.max_waiters_total:
            waiting, limit = self.waiting, f"max_waiters_total={self.max_waiters_total}"
        else:
            return
        raise TooManyWaiters(
            f"No room for one more waiter for the lock {room.name!r}: {waiting} callers of this process wait "
            f"already ({limit}). Try again later, or raise the limit."
        )

    def first(self, room: Room) -> Waiter | None:
        """Who is next. Those whose event loop was closed under them are not there any more."""
        while room.queue:
            if room.queue[0].gate.alive():
                return room.queue[0]
            self.leave(room.queue[0])
        return None

    def fail(self, room: Room, why: str) -> None:
        """Nobody in this room will be granted anything."""
        for waiter in list(room.queue):
            waiter.failure = why
            self.leave(waiter)
            waiter.gate.wake()

    def leave(self, waiter: Waiter) -> None:
        """Granted, out of patience, or interrupted."""
        waiter.room.queue.remove(waiter)
        waiter.leads = False
        self.waiting -= 1

    def settle(self, room: Room) -> None:
        """See to it that a free room has a leader, and that an empty one is gone."""
        if room.busy:
            return
        if (first := self.first(room)) is not None:
            if not first.leads:
                first.leads = True
                first.gate.wake()
        elif self.by_key.get(room.key) is room:
            del self.by_key[room.key]

    def clear(self) -> None:
        self.by_key = {}
        self.waiting = 0
