"""Show who holds a lock and who waits for it, and request a release or break a lock."""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from distlock.backends.inspectable import MOMENT, MOST_SHOWN, KeyState, Quorum, SeenProcess, StatusRow
from distlock.backends.latches import LatchState
from distlock.errors import ConfigurationError
from distlock.grants.grant import Fence
from distlock.names import check_name
from distlock.terms import EXCLUSIVE, KINDS, LATCH, LOCK, Kind, Mode

logger = logging.getLogger("distlock")

#: The status of a process that has not published one.
_UNKNOWN = StatusRow("")
#: How many latches are looked at together.
_LATCHES_AT_ONCE = 100


def printable(said: str) -> str:
    """Return *said* with escapes for control characters: other programs write to the lock service, too."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in said)


@dataclass(frozen=True, slots=True)
class Party:
    """A process that holds a lock or waits for it, as far as is known."""

    #: The lock service's name for the process.
    process: str
    #: The host and pid; "" and 0 if the process has not published them, as in its first few seconds.
    host: str = ""
    pid: int = 0
    #: The view or function that holds or waits; "" if it is unknown.
    where: str = ""
    #: Since when it holds or waits, in seconds since 1970; 0: this is unknown, or about a second ago at most.
    since: float = 0.0
    #: How many of its callers wait.
    waiting: int = 0
    #: How many of its callers read, or how many permits they have; 0: unknown, or the lock is exclusive.
    holding: int = 0
    #: Seconds since it last published its status, if that is overdue: it hangs, or can't reach the lock
    #: service. 0: it responds, as far as is known.
    silent: float = 0.0

    def seconds(self) -> float:
        """Return for how many seconds the process has held or waited; 0 if that is unknown."""
        return max(0.0, time.time() - self.since) if self.since else 0.0

    def __str__(self) -> str:
        at = f"process {self.pid} on {self.host}" if self.host else f"process {self.process}"
        told = f", not responding for {self.silent:.0f} s" if self.silent else ""
        return printable(f"{self.where} in {at}{told}" if self.where else f"{at}{told}")


@dataclass(frozen=True, slots=True)
class LockState:
    """One lock, semaphore or latch, as it was at one moment."""

    name: str
    #: The holder, or one of several: see *holders*. None: nobody holds it.
    holder: Party | None
    #: The first fence of the hold. None: nobody holds it, or the lock service does not show it.
    fence: Fence | None
    #: Seconds until the lease ends; ``math.inf``: there is no hold, or it has no lease, and ends with its
    #: process; None: unknown. For a latch, seconds until it is gone, unless something is counted.
    remaining: float | None
    #: The processes that wait, the next one first. A long queue is cut off.
    queue: tuple[Party, ...]
    #: How many processes wait.
    waiting: int
    #: If the hold is a transaction, the database's id of it; else "". After a ROLLBACK, another transaction
    #: may have the same fence.
    transaction: str = ""
    #: The mode of the hold, and how many other holds there are, of readers or permits.
    mode: Mode = EXCLUSIVE
    others: int = 0
    kind: Kind = LOCK
    #: All holders, with a party for each hold. A very long list is cut off.
    holders: tuple[Party, ...] = ()
    #: How many callers read, or how many permits are out. A process without a published number counts as one.
    inside: int = 0
    #: A semaphore's limit, as one of its holders gave it; 0 if it is unknown.
    limit: int = 0
    #: A latch's original and remaining count; None if there is no latch.
    total: int | None = None
    left: int | None = None
    #: If several servers decide together, how many of them have the hold; else None.
    quorum: Quorum | None = None
    #: If a single lock can't be broken, the statement that ends its session on the server, with all locks of
    #: the session; else "".
    ended_by: str = ""

    @property
    def servers(self) -> str:
        """How many of how many servers have the hold, as a text; "" if one server decides."""
        if (seen := self.quorum) is None:
            return ""
        on = f"{seen.have} of {seen.of} servers"
        return on if seen.answered == seen.of else f"{on}, of which {seen.answered} answered"

    @property
    def hold(self) -> str:
        """An id that no later hold has; "": nobody holds it, or the hold has no id."""
        if self.fence is None:
            return ""
        return f"{self.fence.number}.{self.transaction}" if self.transaction else str(self.fence.number)


@dataclass(frozen=True, slots=True)
class Listed:
    """One process that holds a name or waits for it."""

    name: str
    party: Party
    #: Whether it holds the name; else it waits.
    held: bool
    kind: Kind = LOCK
    #: The mode in which it holds the name.
    mode: Mode = EXCLUSIVE
    #: A semaphore's limit, as the process gave it; 0 if it is unknown.
    limit: int = 0
    #: A latch's original and remaining count; None if it is no latch, or the latch is gone.
    total: int | None = None
    left: int | None = None


class InspectedNamespace:
    """The names of a client, as operators look at them. In this base class, all names are free.

    In subclasses, all methods but `of_kind` and `known` ask the lock service.
    """

    #: The epoch of its fences, which is their first number.
    epoch = 1

    def of_kind(self, kind: Kind) -> InspectedNamespace | None:
        """Return the namespace of the names of *kind*; None: there is none."""
        return self if kind == LOCK else None

    def latch_states(self, names: Sequence[str]) -> Sequence[LatchState | None]:
        """Return the states of the latches *names*; None for each that does not exist."""
        return [None] * len(names)

    def inspect(self, name: str) -> tuple[KeyState, StatusRow | None, str]:
        """Return the lock service's view of *name*, this process's own status, and this process's id there.

        Raises `ConfigurationError` if the lock service does not show holders.
        """
        return KeyState(), None, ""

    def known(self, name: str) -> tuple[KeyState | None, StatusRow | None]:
        """Return the latest view of *name* and this process's own status, as far as known. Does no I/O."""
        return None, None

    def announced(self, before: str) -> Iterator[tuple[str, SeenProcess]]:
        """Yield each published name that begins with *before*, with the process that has published it."""
        return iter(())

    def request_release(self, name: str) -> bool:
        """Ask the holders of *name* to release it: see `distlock.Locks.request_release`."""
        return False

    def break_hold(self, name: str, number: int, transaction: str = "") -> bool:
        """End the hold of *name* whose fences begin with *number*. Return False if it has ended already.

        *transaction*: the database's id of the hold, if the hold is a transaction.
        """
        return False


def inspect(namespace: InspectedNamespace, name: str, kind: Kind = LOCK) -> LockState:
    """See `distlock.Locks.inspect`."""
    if kind not in KINDS:
        raise ConfigurationError(f"kind={kind!r} has to be one of {', '.join(map(repr, KINDS))}.")
    where = namespace.of_kind(kind)
    if where is None:
        return LockState(check_name(name), None, None, math.inf, (), 0, kind=kind)
    if kind == LATCH:
        return _inspect_latch(namespace, where, check_name(name))
    state, mine, own_id = where.inspect(check_name(name))
    seen = [] if state.holder is None else [state.holder, *state.beside]
    holders = tuple(_holds(one, mine if one.process == own_id else one.row) for one in seen)
    rows = [mine if one.process == own_id else one.row for one in seen]
    holder = holders[0] if holders else None
    return LockState(
        name,
        holder,
        Fence(namespace.epoch, state.number) if holder and state.number is not None else None,
        state.remaining if holder else math.inf,
        tuple(_waits(one, mine if one.process == own_id else one.row) for one in state.queue),
        state.waiting,
        state.transaction,
        state.mode,
        state.others,
        kind,
        holders,
        state.out or _inside(holders, state.others),
        state.limit or max((row.limit for row in rows if row is not None), default=0),
        quorum=state.quorum,
        ended_by=state.ended_by,
    )


def _inside(holders: Sequence[Party], others: int) -> int:
    """Return how many callers have the lock: those of *holders*, and one for each hold that is not shown."""
    shown = sum(max(1, one.holding) for one in holders)
    return shown + max(0, others + 1 - len(holders)) if holders else 0


def _inspect_latch(namespace: InspectedNamespace, where: InspectedNamespace, name: str) -> LockState:
    """Inspect a latch, which has no queue: its waiters are those that processes have published."""
    (latch,) = namespace.latch_states([name])
    told = () if _is_open(latch) else where.announced(name)
    waiting = [_waits(seen, seen.row) for one, seen in told if one == name]
    queue = tuple(sorted(waiting, key=lambda one: one.since)[:MOST_SHOWN])
    state = LockState(name, None, None, math.inf, queue, len(waiting), kind=LATCH)
    if latch is None:
        return state
    return replace(state, remaining=latch.ttl, total=latch.total, left=latch.left)


def known_holder(namespace: InspectedNamespace, name: str) -> Party | None:
    """Return the holder of *name* if it is known to have held it for `MOMENT` seconds. Does no I/O."""
    state, mine = namespace.known(name)
    if mine is not None and mine.held_since:
        party = Party("", socket.gethostname(), os.getpid(), mine.held_at, mine.held_since)
    elif state is not None and state.holder is not None and state.holder.row is not None:
        party = _holds(state.holder, state.holder.row)
    else:
        return None
    return party if party.seconds() >= MOMENT else None


def list_locks(namespace: InspectedNamespace, before: str = "") -> Iterator[Listed]:
    """See `distlock.Locks.list`."""
    for kind in KINDS:
        where = namespace.of_kind(kind)
        if where is None:
            continue
        told = where.announced(before)
        if kind == LATCH:
            yield from _list_latches(namespace, told)
            continue
        for name, seen in told:
            row = seen.row
            if row is not None and (row.held_since or row.held):
                yield Listed(name, _holds(seen, row), True, kind, row.mode, row.limit)
            if row is not None and row.waiting:
                yield Listed(name, _waits(seen, row), False, kind, limit=row.limit)


def _list_latches(namespace: InspectedNamespace, told: Iterator[tuple[str, SeenProcess]]) -> Iterator[Listed]:
    while some := list(islice(told, _LATCHES_AT_ONCE)):
        states = namespace.latch_states([name for name, _ in some])
        for (name, seen), state in zip(some, states, strict=True):
            if _is_open(state):
                continue
            one = Listed(name, _waits(seen, seen.row), False, LATCH)
            yield one if state is None else replace(one, total=state.total, left=state.left)


def _is_open(latch: LatchState | None) -> bool:
    """Return whether *latch* is open, so that nobody waits for it, even if processes have published waits."""
    return latch is not None and not latch.left


def _holds(seen: SeenProcess, row: StatusRow | None) -> Party:
    row = row or _UNKNOWN
    where = (row.held_at, row.held_since)
    return Party(seen.process, seen.host, seen.pid, *where, holding=row.holding, silent=seen.silent)


def _waits(seen: SeenProcess, row: StatusRow | None) -> Party:
    row = row or _UNKNOWN
    where = (row.waits_at, row.waiting_since, row.waiting)
    return Party(seen.process, seen.host, seen.pid, *where, silent=seen.silent)


def ask_back(namespace: InspectedNamespace, state: LockState, by: str) -> bool:
    """Ask the holder of the lock that *state* shows to release it: see `distlock.Locks.request_release`.

    *by*: the person, for the log. Returns whether anybody holds the lock. Raises `BackendUnavailable`;
    `ConfigurationError` if the lock service can't pass the request on.
    """
    where = namespace.of_kind(state.kind)
    if where is None or not where.request_release(state.name):
        return False
    logger.warning(
        "The holder of the %s %r, %s, was asked by %s to give it back.",
        state.kind,
        state.name,
        state.holder or "which came just now",
        printable(by),
    )
    return True


def break_lock(namespace: InspectedNamespace, state: LockState, by: str) -> bool:
    """Break the hold that *state* shows, and no later one. The next in the queue gets the lock.

    *by*: the person, for the log. Returns False and changes nothing if the hold has ended meanwhile, or there
    was none. The holder learns of the break at its next renewal at the latest. Until then it believes that it
    has the lock: with a fence it can't commit any more, without one it can. Raises `BackendUnavailable`;
    `ConfigurationError` if the lock service can't break a single hold.
    """
    where = namespace.of_kind(state.kind)
    if state.holder is None or where is None:
        return False
    # A hold without an id can't be broken. The error says why.
    number = 0 if state.fence is None else state.fence.number
    if not where.break_hold(state.name, number, state.transaction):
        return False
    lasted = state.holder.seconds()
    logger.warning(
        "The %s %r, held by %s%s, was broken by %s.",
        state.kind,
        state.name,
        state.holder,
        f" for {lasted:.0f} seconds" if lasted else "",
        printable(by),
    )
    return True
