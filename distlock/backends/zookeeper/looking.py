"""A line, seen from outside: who is first, who waits, and how the hold that was seen is broken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Delete, Exists, GetChildren, GetData

from distlock import clock
from distlock.backends.base import Ask
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.failures import unavailable
from distlock.backends.zookeeper.nodes import contender_prefix, first_number_of, in_line, lock_path
from distlock.backends.zookeeper.session import Session

#: So many of the first are looked at together: on a busy lock some have left by then.
_SOME = 8


class Standing(NamedTuple):
    """A line, at one moment."""

    #: The contenders, by their names; the first has the lock, or is about to take it.
    names: Sequence[str]
    #: The first number of its hold.
    number: int
    #: How long it may outlive its process, seconds.
    lifetime: float


class Looking:
    """Threads share it."""

    def __init__(self, session: Session, base: str) -> None:
        self._session = session
        self._base = base

    def names(self, parent: str, deadline: Deadline, fresh: bool = False) -> list[str]:
        """The nodes in line, the first one first."""
        requests: list[Any] = [GetChildren(parent, None)]
        if fresh:
            requests.insert(0, self._session.wire.barrier(self._base))
        listed = self._session.ask(requests, deadline)[-1]
        return [] if isinstance(listed, NoNodeError) else in_line(self._checked(listed))

    def is_made(self, deadline: Deadline) -> bool:
        """Whether the node is there that the first lock makes."""
        (stat,) = self._session.ask([Exists(self._base, None)], deadline)
        return self._checked(stat) is not None

    def is_first(self, ask: Ask, deadline: Deadline) -> bool:
        """Whether another client has the lock with this token. Its session is what keeps it alive."""
        parent = lock_path(self._base, ask.key)
        names = self.names(parent, deadline, fresh=True)
        if not names or not names[0].startswith(contender_prefix(ask.token)):
            return False
        (stat,) = self._session.ask([Exists(f"{parent}/{names[0]}", None)], deadline)
        # What our own session has and we don't know was given up, and is about to be deleted.
        return self._checked(stat) is not None and stat.ephemeralOwner != self._session.id

    def standing(self, key: str, deadline: Deadline) -> Standing | None:
        """The line for *key*; None if nobody is there."""
        parent = lock_path(self._base, key)
        while names := self.names(parent, deadline):
            first = [GetData(f"{parent}/{name}", None) for name in names[:_SOME]]
            for place, answer in enumerate(self._session.ask(first, deadline)):
                if not isinstance(answer, NoNodeError):
                    data, stat = self._checked(answer)
                    return Standing(names[place:], first_number_of(stat.czxid, 1), _lifetime(data))
            if clock.now() >= deadline:
                moving = KazooTimeoutError(f"the line below {parent} moves faster than it can be read")
                raise unavailable(self._session.address, moving)
        return None

    def break_first(self, key: str, number: int, deadline: Deadline) -> bool:
        """Delete the first node of *key* if its hold begins with *number*. Nobody else ever has its name."""
        standing = self.standing(key, deadline)
        if standing is None or standing.number != number:
            return False
        path = f"{lock_path(self._base, key)}/{standing.names[0]}"
        # Not repeated where the connection breaks: then it is not known who deleted it.
        (answer,) = self._session.exchange([Delete(path, -1)], deadline)
        if not isinstance(answer, NoNodeError):
            self._checked(answer)
            return True
        return False

    def _checked(self, answer: Any) -> Any:
        if isinstance(answer, KazooException):
            raise unavailable(self._session.address, answer)
        return answer


def _lifetime(data: bytes) -> float:
    """What `Wire.lifetime` has written. Other programs write what they like."""
    try:
        seconds = float(data)
    except ValueError:
        return math.inf
    return seconds if seconds > 0 else math.inf
