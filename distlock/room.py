"""The waiting room: this process's waiters for one name, first come first served.

The process, not a waiter, is the one contender outside. The waiter at the head of the room *leads*: it
asks the lock service on behalf of all. When it gives up, the next one takes over its place in the
service's queue.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from distlock.backends.base import Ask
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
