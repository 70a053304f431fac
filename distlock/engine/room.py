"""The waiting room: this process's waiters for one name, first come first served.

The process, not a waiter, is the one contender outside. The waiter at the head of the room *leads*: it
asks the lock service on behalf of all. When it gives up, the next one takes over its place in the
service's queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from distlock.backends.base import Ask
from distlock.engine.admission import Admission, Pace
from distlock.engine.call import Call
from distlock.engine.steps import Gate
from distlock.errors import ConfigurationError
from distlock.modes import EXCLUSIVE, READ
from distlock.owner import Owner, current_owner
from distlock.terms import Terms

if TYPE_CHECKING:
    from distlock.engine.hold import Hold
    from distlock.engine.name_grant import NameGrant


class Waiter:
    __slots__ = (
        "asks_once",
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

    def __init__(self, room: Room, gate: Gate, came: float, timeout: float, terms: Terms) -> None:
        self.room = room
        self.terms = terms
        self.gate = gate
        #: Since when it waits.
        self.came = came
        self.deadline = came + timeout
        #: It does not wait for the lock: it stands in line for as long as answers are under way.
        self.asks_once = not timeout > 0
        self.owner = current_owner()
        self.leads = False
        #: Whether the lock was not simply free.
        self.waited = False
        self.grant: NameGrant | None = None
        #: Why the leader failed for all of us.
        self.failure: str | None = None
        #: What it asks the lock service, or has asked it last.
        self.call: Call | None = None
        #: Others go on without it: it asks once and is refused, or its event loop stood still past its
        #: time-out. See `distlock.engine.stalled`.
        self.passed_over = False

    @property
    def is_calling(self) -> bool:
        """Whether the lock service may still do what it is asked."""
        return self.call is not None and not self.call.is_over()


class Handed(NamedTuple):
    """The hold of *token* has come, with *number*. It was granted after *sent*, and is not confirmed."""

    token: str
    number: int
    sent: float


class Room:
    __slots__ = (
        "ask",
        "busy",
        "granted",
        "handed",
        "hold",
        "key",
        "name",
        "pace",
        "queue",
        "queued",
        "shared",
        "since",
    )

    def __init__(self, key: str, name: str, since: float = 0.0, pace: Pace | None = None) -> None:
        self.key = key
        self.name = name
        self.queue: deque[Waiter] = deque()
        #: What the lock service may know of us while we wait. It outlives a leader, not a hold.
        self.ask: Ask | None = None
        #: The ask that was told to wait, unless it is being asked again.
        self.queued: Ask | None = None
        #: What a push said last that handed the lock over.
        self.handed: Handed | None = None
        #: There is an exclusive hold, or one is on its way back: nobody leads.
        self.busy = False
        self.hold: Hold | None = None
        #: Those that others may have beside, of readers or of permits, the latest last.
        self.shared: list[Hold] = []
        #: For `Admission`.
        self.since = since
        self.granted = False
        self.pace = pace

    @property
    def holds(self) -> list[Hold]:
        """What this process owns of the name."""
        return [*self.shared] if self.hold is None else [self.hold, *self.shared]

    @property
    def turns(self) -> int:
        """How many grants those that wait are waiting for: readers that stand together share one."""
        modes = [waiter.terms.mode for waiter in [*self.queue]]
        return len(modes) - sum(one == other == READ for one, other in pairwise(modes))

    def reads(self, owner: Owner) -> bool:
        """Whether *owner* has a reader's grant that is out."""
        return any(waiter.owner == owner for hold in self.holds for waiter in hold.readers.values())

    def hold_of(self, token: str) -> Hold | None:
        """The hold that *token* proves, if it is ours still."""
        return next((hold for hold in self.holds if hold.ask.token == token), None)

    def wake_leader(self) -> None:
        """It is worth asking the lock service again."""
        if self.queue and self.queue[0].leads:
            self.queue[0].gate.wake()


class Rooms:
    """All waiting rooms of a client. The engine calls it under its mutex.

    *retire*: called with an ask that nobody wants any more.
    """

    def __init__(self, admission: Admission, retire: Callable[[Ask], None]) -> None:
        self.admission = admission
        self._retire = retire
        self.by_key: dict[str, Room] = {}
        self.waiting = 0

    def enter(
        self, key: str, name: str, gate: Gate, timeout: float, terms: Terms, now: float
    ) -> Waiter | None:
        """Stand in line for *timeout* seconds at most.

        None for the impatient (0) where somebody of this process holds it, or waits for it: they would pass
        them. Readers and permits stand in line where that is still being asked. Raises `TooManyWaiters`.
        """
        room = self.by_key.get(key)
        if room is not None and not room.busy:
            self.settle(room)
            room = self.by_key.get(key)
        if room is None:
            room = self.by_key[key] = Room(key, name, now, self.admission.recall(key, now))
        else:
            hold = room.hold
            if terms.mode == EXCLUSIVE and (room.shared or (hold is not None and hold.readers)):
                self.refuse_upgrade(key, name)
            if timeout > 0:
                self.admission.admit(room, self.waiting, timeout, now)
            elif terms.mode == EXCLUSIVE or not self._may_ask_once(room):
                return None
        waiter = Waiter(room, gate, now, timeout, terms)
        waiter.leads = not room.busy and not room.queue
        room.queue.append(waiter)
        self.waiting += 1
        return waiter

    def refuse_upgrade(self, key: str, name: str) -> None:
        """Raise `ConfigurationError` if the caller reads under *key*, where it would wait for itself."""
        room = self.by_key.get(key)
        if room is not None and room.reads(current_owner()):
            raise upgrade_refusal(repr(name))

    def _may_ask_once(self, room: Room) -> bool:
        """Whether one that does not wait may have the lock, beside others or after the answer to them."""
        if room.busy or (room.ask is not None and room.queued is room.ask):
            return False
        if not room.queue:
            return True
        # The code beneath a signal handler can't go on, and so never has its answer.
        owner = current_owner()
        return self.admission.has_place(room, self.waiting) and all(one.owner != owner for one in room.queue)

    def refuse_once(self, room: Room, which: Callable[[Waiter], bool] = lambda waiter: True) -> None:
        """Refuse those in line that ask once: with others the lock service has answered *which* of them."""
        for waiter in [one for one in room.queue if one.asks_once and which(one)]:
            waiter.passed_over = True
            self.leave(waiter)
            waiter.gate.wake()

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
        if room.queue and (first := self.first(room)) is not None:
            if not first.leads:
                first.leads = True
                first.gate.wake()
        elif self.by_key.get(room.key) is room:
            if room.ask is not None:
                # Its waiters went with their event loop, and told nobody.
                self._retire(room.ask)
                room.ask = None
            if room.shared:
                return
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


def upgrade_refusal(shown: str) -> ConfigurationError:
    """What a caller is told that reads under the lock *shown* and wants to write."""
    return ConfigurationError(
        f"The lock {shown} can't be taken to write: this very thread or task reads under it, and would wait "
        "for itself. Release the read lock first, and read again what you need; or take the write lock from "
        "the beginning, and downgrade() its grant when only reading is left."
    )
