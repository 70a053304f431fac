"""Guards inside guards that want other names: callers that wait while they hold may wait in a ring.

Every guard takes its names in one order, the same in all processes, and so do guards inside each other whose
names come in that order. In every ring some caller asks against it. In one process a ring is seen when it
closes, and the caller that closes it is refused at once; between processes a caller that asks against the
order waits for half of its time only. So the others get through.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from distlock.current_grants import CurrentGrant, current_grants
from distlock.errors import LockTimeout
from distlock.locks import Locks
from distlock.owner import Owner, current_owner

logger = logging.getLogger("distlock")

#: What one name is a lock of.
Key = tuple[object, str]

#: So many kinds of nested names are told apart, in a process that is told names by its clients.
_MOST = 1000


@dataclass(frozen=True, eq=False, slots=True)
class _Waiter:
    holds: frozenset[Key]
    wants: frozenset[Key]
    owner: Owner


_waiters: set[_Waiter] = set()
_told: set[tuple[str, ...]] = set()
_books = threading.RLock()


def patience(client: Locks, names: Sequence[str], timeout: float | None) -> float | None:
    """How long to wait for *names* here, where *timeout* is what the guard says: seconds, or None."""
    if _against_the_order(client, names, current_grants()) is None:
        return timeout
    seconds = client.timeout if timeout is None else timeout
    return seconds / 2 if seconds > 0 else seconds


@contextmanager
def waiting(client: Locks, names: Sequence[str]) -> Iterator[None]:
    """Around the wait for *names*. Raises `LockTimeout` at once where it would close a ring."""
    around = current_grants()
    if not around:
        yield
        return
    against = _against_the_order(client, names, around)
    if against is not None:
        _tell_once(client, names, against)
    me = _Waiter(
        frozenset(_key(one.client, name) for one in around for name in one.grant.names),
        frozenset(_key(client, name) for name in names),
        current_owner(),
    )
    with _books:
        if _closes_a_ring(me):
            raise LockTimeout(
                f"{_shown(names)} is held by a call that waits for {_shown(_names_of(around))}, which is "
                f"held here: both would wait until their time-outs. {_line(client, names, around)}"
            )
        _waiters.add(me)
    try:
        yield
    except LockTimeout as error:
        if against is None:
            raise
        raise LockTimeout(f"{error} {_line(client, names, around)}") from error
    finally:
        with _books:
            _waiters.discard(me)


@contextmanager
def block_waiting(client: Locks, names: Sequence[str], seconds: float) -> Iterator[float]:
    """`waiting` for a ``with`` block of *client* inside a guard. Gives how long to wait: of *seconds*.

    A caller without *seconds* to wait is in no ring. A guard may wait by a lock of *client*, too.
    """
    if not seconds or not current_grants() or _guard_waits():
        yield seconds
        return
    with waiting(client, names):
        yield patience(client, names, seconds) or seconds


def _guard_waits() -> bool:
    """Whether a guard of the running thread or task waits already."""
    owner = current_owner()
    with _books:
        return any(one.owner == owner for one in _waiters)


def _closes_a_ring(me: _Waiter) -> bool:
    seen, ahead = {me}, [me]
    while ahead:
        waiter = ahead.pop()
        for other in _waiters - seen:
            if not waiter.wants.isdisjoint(other.holds):
                if not other.wants.isdisjoint(me.holds):
                    return True
                seen.add(other)
                ahead.append(other)
    return False


def _against_the_order(
    client: Locks, names: Sequence[str], around: Sequence[CurrentGrant]
) -> CurrentGrant | None:
    """What is held around, and comes after one of *names*."""
    wanted = min(_rank(client, name) for name in names)
    for one in around:
        if any(_rank(one.client, name) > wanted for name in one.grant.names):
            return one
    return None


def _tell_once(client: Locks, names: Sequence[str], outer: CurrentGrant) -> None:
    # Names that differ in their numbers only come from the same guards.
    kind = tuple(re.sub(r"\d+", "0", name) for name in (*outer.grant.names, "", *names))
    with _books:
        if kind in _told or len(_told) >= _MOST:
            return
        _told.add(kind)
    logger.warning(
        "A guard on %s stands inside one on %s. A call that takes them the other way round would wait for "
        "this one, and this one for it: so it waits for half of its time-out only. %s",
        _shown(names),
        _shown(outer.grant.names),
        _line(client, names, [outer]),
    )


def _line(client: Locks, names: Sequence[str], around: Sequence[CurrentGrant]) -> str:
    """What to write instead."""
    if not all(client.is_place_of(one.client) for one in around):
        return "They are of different aliases: take those of one alias first everywhere."
    both = ", ".join(f'"{name}"' for name in sorted({*_names_of(around), *names}))
    return f"Write one guard with all names, on the outer function: @distributed_lock({both})"


def _names_of(around: Sequence[CurrentGrant]) -> list[str]:
    return [name for one in around for name in one.grant.names]


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _key(client: Locks, name: str) -> Key:
    return (id(client) if client.place is None else repr(client.place), name)


def _rank(client: Locks, name: str) -> tuple[str, str]:
    """The one order for everybody: also for other processes, which have the same settings."""
    return ("" if client.place is None else repr(client.place), name)
