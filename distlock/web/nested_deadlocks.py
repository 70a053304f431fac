"""Keeps nested guards from deadlocks: their callers hold one lock while they wait for another.

All names have one order, which is the same in all processes. If callers wait for each other in a circle, at
least one of them asks against the order: for a name that comes before one that it holds. Inside one process,
the caller that would close a circle is refused at once. Circles of several processes are not seen, so a
caller that asks against the order waits only for half of its time-out. Then the other callers can go on.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from distlock.errors import LockTimeout
from distlock.grants.current import CurrentGrant, current_grants
from distlock.locks.namespace import Namespace
from distlock.owner import Owner, current_owner
from distlock.terms import EXCLUSIVE, PERMIT, READ, Mode

logger = logging.getLogger("distlock")

#: One lock: the identity of its namespace, and its name.
Key = tuple[object, str]

#: The most warnings about nested names. Each is logged once, but clients may choose names. The last one says
#: that no more follow.
_MOST = 1000


@dataclass(frozen=True, eq=False, slots=True)
class _RequestWaiter:
    holds: frozenset[Key]
    #: The locks in `holds` that the caller holds for reading.
    reads: frozenset[Key]
    wants: frozenset[Key]
    only_reads: bool
    owner: Owner

    def waits_for(self, other: _RequestWaiter) -> bool:
        keys = self.wants & other.holds
        return bool(keys - other.reads if self.only_reads else keys)


_waiters: set[_RequestWaiter] = set()
_logged: set[tuple[str, ...]] = set()
_books = threading.RLock()


def patience(
    namespace: Namespace, names: Sequence[str], around: Sequence[CurrentGrant], seconds: float
) -> float:
    """Return how long to wait for *names*: *seconds*, or half if a grant of *around* has a later name."""
    if seconds > 0 and _against_the_order(namespace, names, around) is not None:
        return seconds / 2
    return seconds


@contextmanager
def waiting(
    namespace: Namespace,
    names: Sequence[str],
    around: Sequence[CurrentGrant],
    mode: Mode = EXCLUSIVE,
    in_order: bool = False,
) -> Iterator[None]:
    """Register, during the block, that the caller waits for *names* and holds *around*.

    Raises `LockTimeout` if that would close a circle of callers that wait for each other. A caller that waits
    for a permit is in no circle, because it waits for no certain holder. Logs a warning, once for the same
    guards, if the caller asks against the order, unless *in_order*: the site has chosen the order, as in a
    stack of guards.
    """
    if mode == PERMIT:
        yield
        return
    against = None if in_order else _against_the_order(namespace, names, around)
    if against is not None:
        _log_once(namespace, names, against)
    me = _RequestWaiter(
        _keys(around),
        _keys([one for one in around if one.grant.mode == READ]),
        frozenset(_key(namespace, name) for name in names),
        mode == READ,
        current_owner(),
    )
    with _books:
        if _closes_circle(me):
            raise LockTimeout(
                f"{_shown(names)} is held by a call that waits for {_shown(_names_of(around))}, which is "
                f"held here: both would wait until their time-outs. {_line(namespace, names, around)}"
            )
        _waiters.add(me)
    try:
        yield
    except LockTimeout as error:
        if against is None:
            raise
        raise LockTimeout(f"{error} {_line(namespace, names, around)}") from error
    finally:
        with _books:
            _waiters.discard(me)


@contextmanager
def block_waiting(namespace: Namespace, names: Sequence[str], seconds: float, mode: Mode) -> Iterator[float]:
    """Do what `waiting` does, for a lock that guarded code acquires itself. Yield the seconds to wait for it.

    A caller that does not wait (*seconds* is 0) is in no circle.
    """
    if not seconds or mode == PERMIT or not (around := current_grants()):
        yield seconds
        return
    with waiting(namespace, names, around, mode):
        yield patience(namespace, names, around, seconds)


def _closes_circle(me: _RequestWaiter) -> bool:
    seen, ahead = {me}, [me]
    while ahead:
        waiter = ahead.pop()
        for other in _waiters - seen:
            if waiter.waits_for(other):
                if other.waits_for(me):
                    return True
                seen.add(other)
                ahead.append(other)
    return False


def _against_the_order(
    namespace: Namespace, names: Sequence[str], around: Sequence[CurrentGrant]
) -> CurrentGrant | None:
    """Return a grant of *around* with a name that comes after one of *names* in the order, else None."""
    wanted = min(_rank(namespace, name) for name in names)
    for one in around:
        if any(_rank(one.namespace, name) > wanted for name in one.grant.names):
            return one
    return None


def _log_once(namespace: Namespace, names: Sequence[str], outer: CurrentGrant) -> None:
    # Names that differ only in their numbers come from the same guards.
    kind = tuple(re.sub(r"\d+", "0", name) for name in (*outer.grant.names, "", *names))
    with _books:
        if kind in _logged or len(_logged) >= _MOST:
            return
        _logged.add(kind)
        is_last = len(_logged) >= _MOST
    logger.warning(
        "A guard on %s stands inside one on %s. A call that takes them the other way round would wait for "
        "this one, and this one for it: so it waits for half of its time-out only. %s",
        _shown(names),
        _shown(outer.grant.names),
        _line(namespace, names, [outer]),
    )
    if is_last:
        logger.warning("That was warning %d of nested guards. This process logs no more of them.", _MOST)


def _line(namespace: Namespace, names: Sequence[str], around: Sequence[CurrentGrant]) -> str:
    """Return the remedy, as a sentence."""
    if not all(namespace.is_same(one.namespace) for one in around):
        return "They are of different aliases: take those of one alias first everywhere."
    both = " and ".join(repr(name) for name in sorted({*_names_of(around), *names}))
    return f"Write one guard on the outer function, with the templates of {both}: @distributed_lock(…, …)"


def _keys(held: Sequence[CurrentGrant]) -> frozenset[Key]:
    return frozenset(_key(one.namespace, name) for one in held for name in one.grant.names)


def _names_of(around: Sequence[CurrentGrant]) -> list[str]:
    return [name for one in around for name in one.grant.names]


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _key(namespace: Namespace, name: str) -> Key:
    return (id(namespace) if namespace.identity is None else repr(namespace.identity), name)


def _rank(namespace: Namespace, name: str) -> tuple[str, str]:
    """Return the sort key of *name*. Processes with the same settings have the same order."""
    return ("" if namespace.identity is None else repr(namespace.identity), name)
