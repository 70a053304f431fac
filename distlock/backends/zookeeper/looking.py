"""A line, seen from outside: which contenders have the lock, which wait, and how a hold is broken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Delete, Exists, GetChildren, GetData

from distlock import clock
from distlock.backends.base import EXCLUSIVE, PERMIT, READ, LockRequest, Mode
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.exchanges import Exchanges, run
from distlock.backends.zookeeper.failures import unavailable
from distlock.backends.zookeeper.head import line_of
from distlock.backends.zookeeper.nodes import (
    first_number_of,
    in_line,
    lock_path,
    prefix_of,
    reading_number_of,
)
from distlock.backends.zookeeper.session import Session
from distlock.backends.zookeeper.sharing import entered, is_reader, wants_permits
from distlock.backends.zookeeper.wanted import want
from distlock.backends.zookeeper.watch import says_that_it_reads

#: So many of the first are looked at together: on a busy lock some have left by then.
_SOME = 8


class Standing(NamedTuple):
    """A line, at one moment."""

    #: The contenders, by their names.
    names: Sequence[str]
    #: How many of the first have the lock, or are about to take it.
    holders: int
    #: The first number of the first one's hold, and its mode.
    number: int
    mode: Mode
    #: How long it may outlive its process, seconds.
    lifetime: float


class Looking:
    """Threads share it."""

    def __init__(self, session: Session, base: str) -> None:
        self._session = session
        self._base = base

    def line(self, key: str, deadline: Deadline, fresh: bool = False) -> Exchanges[list[str]]:
        """Return the names of the contenders for *key*, the first one first.

        Args:
            key: The lock.
            deadline: When to give up.
            fresh: Whether a majority of the servers has to confirm it.

        Raises:
            Foreign: The lock's node has a child that is no contender.
        """
        names = yield from self._children(key, deadline, fresh)
        return line_of(self._session.address, key, lock_path(self._base, key), names)

    def _children(self, key: str, deadline: Deadline, fresh: bool = False) -> Exchanges[list[str]]:
        requests: list[Any] = [GetChildren(lock_path(self._base, key), None)]
        if fresh:
            requests.insert(0, self._session.wire.barrier(self._base))
        *_, listed = yield from self._session.asking(requests, deadline)
        names: list[str] = [] if isinstance(listed, NoNodeError) else self._checked(listed)
        return names

    def is_made(self, deadline: Deadline) -> bool:
        """Whether the node is there that the first lock makes."""
        (stat,) = self._session.ask([Exists(self._base, None)], deadline)
        return self._checked(stat) is not None

    def is_held(self, request: LockRequest, deadline: Deadline) -> bool:
        """Whether another client has the lock with this token. Its session is what keeps it alive."""
        parent, prefix = lock_path(self._base, request.key), prefix_of(request.token)
        # The hold is there whatever else is: another program's child does not end it.
        names = in_line(run(self._children(request.key, deadline, fresh=True)))
        mine = next((name for name in names if name.startswith(prefix)), None)
        if mine is None:
            return False
        paths = [f"{parent}/{mine}", f"{parent}/{names[0]}"]
        stat, first = self._session.ask([Exists(paths[0], None), GetData(paths[1], None)], deadline)
        opened = names[0] if not isinstance(first, KazooException) and says_that_it_reads(first) else ""
        if mine not in names[: entered(names, opened)]:
            return False
        # What our own session has and we don't know was given up, and is about to be deleted.
        return self._checked(stat) is not None and stat.ephemeralOwner != self._session.id

    def standing(self, key: str, deadline: Deadline) -> Standing | None:
        """The line for *key*; None if nobody is there."""
        parent = lock_path(self._base, key)
        while names := run(self.line(key, deadline)):
            first = [GetData(f"{parent}/{name}", None) for name in names[:_SOME]]
            for place, answer in enumerate(self._session.ask(first, deadline)):
                if not isinstance(answer, NoNodeError):
                    return _standing(names[place:], self._checked(answer))
            if clock.now() >= deadline:
                moving = KazooTimeoutError(f"the line below {parent} moves faster than it can be read")
                raise unavailable(self._session.address, moving)
        return None

    def request_release(self, key: str, deadline: Deadline) -> bool:
        """Have it known that the holds of *key* are wanted back. False: there are none."""
        standing = self.standing(key, deadline)
        if standing is None:
            return False
        holders = standing.names[: standing.holders]
        return want(self._session, lock_path(self._base, key), holders, deadline)

    def break_hold(self, key: str, number: int, deadline: Deadline) -> bool:
        """Delete the node of *key* whose hold begins with *number*. Nobody else ever has its name."""
        standing = self.standing(key, deadline)
        if standing is None:
            return False
        parent = lock_path(self._base, key)
        names = standing.names[: standing.holders]
        found = self._session.ask([GetData(f"{parent}/{name}", None) for name in names], deadline)
        for name, said in zip(names, found, strict=True):
            if not isinstance(said, NoNodeError) and _number(name, self._checked(said)) == number:
                # Not repeated where the connection breaks: then it is not known who deleted it.
                (answer,) = self._session.exchange([Delete(f"{parent}/{name}", -1)], deadline)
                if not isinstance(answer, NoNodeError):
                    self._checked(answer)
                    return True
        return False

    def _checked(self, answer: Any) -> Any:
        if isinstance(answer, KazooException):
            raise unavailable(self._session.address, answer)
        return answer


def _standing(names: Sequence[str], said: tuple[bytes, Any]) -> Standing:
    """*said*: what is told of the first of *names*."""
    first, reads = names[0], says_that_it_reads(said)
    mode: Mode = READ if reads or is_reader(first) else PERMIT if wants_permits(first) else EXCLUSIVE
    holders = entered(names, opened=first if reads else "")
    return Standing(names, holders, _number(first, said), mode, _lifetime(said[0]))


def _number(name: str, said: tuple[bytes, Any]) -> int:
    """The number of the hold of the node *name*, about which it was *said*."""
    if is_reader(name) or says_that_it_reads(said):
        return reading_number_of(said[1].czxid)
    return first_number_of(said[1].czxid, 1)


def _lifetime(data: bytes) -> float:
    """What `Wire.lifetime` has written. Other programs write what they like."""
    try:
        seconds = float(data.partition(b" ")[0])
    except ValueError:
        return math.inf
    return seconds if seconds > 0 else math.inf
