"""The waiting room: this process's waiters for one name, first come first served.

The process, not a waiter, is the one contender outside. The waiter at the head of the room *leads*: it
asks the lock service on behalf of all. When it gives up, the next one takes over its place in the
service's queue.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from distlock.backends.base import Ask
from distlock.engine.admission import Admission, Pace
from distlock.engine.steps import Call, Gate
from distlock.owner import current_owner
from distlock.terms import Terms

if TYPE_CHECKING:
    from distlock.engine.hold import Hold
    from distlock.engine.name_grant import NameGrant


class Waiter:
    __slots__ = (
        "call",
        "came",
        "deadline",
        "failure",
        "gate",
        "grant",
        "leads",
        "owner",
        "passed_over",
        "room",
        "terms",
        "waited",
    )

    def __init__(self, room: Room, gate: Gate, came: float, deadline: float, terms: Terms) -> None:
        self.room = room
        self.terms = terms
        self.gate = gate
        #: Since when it waits.
        self.came = came
        self.deadline = deadline
        self.owner = current_owner()
        self.leads = False
        #: Whether the lock was not simply free.
        self.waited = False
        self.grant: NameGrant | None = None
        #: Why the leader failed for all of us.
        self.failure: str | None = None
        #: What it asks the lock service, or has asked it last.
        self.call: Call | None = None
        #: It did not come through its gate in time: others went on.
        self.passed_over = False

    @property
    def is_calling(self) -> bool:
        """Whether the lock service may still do what it is asked."""
        return self.call is not None and not self.call.over


class Room:
    __slots__ = ("ask", "busy", "granted", "hold", "key", "name", "pace", "queue", "since")

    def __init__(self, key: str, name: str, since: float = 0.0, pace: Pace | None = None) -> None:
        self.key = key
        self.name = name
        self.queue: deque[Waiter] = deque()
        #: What the lock service may know of us while we wait. It outlives a leader, not a hold.
        self.ask: Ask | None = None
        #: There is a hold, or one is on its way back: nobody leads.
        self.busy = False
        self.hold: Hold | None = None
        #: For `Admission`.
        self.since = since
        self.granted = False
        self.pace = pace

    @property
    def holds(self) -> list[Hold]:
        """What this process owns of the name."""
        return [] if self.hold is None else [self.hold]

    def hold_of(self, token: str) -> Hold | None:
        """The hold that *token* proves, if it is ours still."""
        return next((hold for hold in self.holds if hold.ask.token == token), None)

    def wake_leader(self) -> None:
        """It is worth asking the lock service again."""
        if self.queue and self.queue[0].leads:
            self.queue[0].gate.wake()


class Rooms:
    """All waiting rooms of a client. The engine calls it under its mutex."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.by_key: dict[str, Room] = {}
        self.waiting = 0

    def enter(
        self, key: str, name: str, gate: Gate, timeout: float, terms: Terms, now: float
    ) -> Waiter | None:
        """Stand in line for *timeout* seconds at most.

        None for the impatient (0) where there is a line. Raises `TooManyWaiters`.
        """
        room = self.by_key.get(key)
        if room is not None:
            self.settle(room)
            room = self.by_key.get(key)
        if room is None:
            room = self.by_key[key] = Room(key, name, now, self.admission.recall(key, now))
        elif not timeout > 0:
            # Somebody of this process holds it or waits for it: not waiting means not passing them.
            return None
        else:
            self.admission.admit(room, self.waiting, timeout, now)
        waiter = Waiter(room, gate, now, now + timeout, terms)
        waiter.leads = not room.busy and not room.queue
        room.queue.append(waiter)
        self.waiting += 1
        return waiter

    def first(self, room: Room) -> Waiter | None:
        """The next waiter. Those whose event loop was closed under them are not there any more."""
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
        """Granted, out of patience, interrupted, or failed."""
        waiter.room.queue.remove(waiter)
        waiter.leads = False
        self.waiting -= 1

    def give_up(self, waiter: Waiter, now: float) -> None:
        """Out of patience."""
        self.admission.timed_out(waiter.room, now)
        self.leave(waiter)
        self.settle(waiter.room)

    def recount(self) -> None:
        """The thread that changed the rooms may have been interrupted between a queue and the count."""
        self.waiting = sum(len(room.queue) for room in self.by_key.values())

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
            if room.pace is not None:
                self.admission.remember(room.key, room.pace)

    def close(self, why: str) -> list[Hold]:
        """Nobody who waits will be granted anything. Returns the holds that are out."""
        rooms = list(self.by_key.values())
        for room in rooms:
            self.fail(room, why)
            room.ask = None
            self.settle(room)
        return [hold for room in rooms for hold in room.holds]

    def after_fork(self) -> None:
        """In the child: what the parent holds stays the parent's."""
        for room in self.by_key.values():
            for hold in room.holds:
                hold.lost = "it belongs to the parent of this forked process"
                hold.room = Room(room.key, room.name)
        self.admission.forget()
        self.by_key = {}
        self.waiting = 0
