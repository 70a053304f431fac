"""Several locks as one, which may belong to several clients: all of them are acquired, or none.

This is like Curator's InterProcessMultiLock and Redisson's MultiLock, with two differences. All callers
acquire the locks in the same order, so that they never deadlock; and the time-out is for all locks together.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from types import FrameType
from typing import Any

from distlock import clock
from distlock.engine.admission import is_time_out
from distlock.engine.engine import REPLY_GRACE
from distlock.engine.sans_io import Commands, Parker, TaskParker, ThreadParker, arun, call_in_thread, run
from distlock.errors import ConfigurationError, LockError
from distlock.grants.grant import Grant
from distlock.grants.joint import JointGrant, MultiGrant
from distlock.locks import self_deadlock
from distlock.locks.lock import Lock
from distlock.locks.self_deadlock import Entry
from distlock.numbers import check_timeout
from distlock.owner import in_event_loop
from distlock.service_identity import sort_key_of
from distlock.terms import EXCLUSIVE

#: Each lock with its ``with`` block that ends; None: no block of the lock runs any more.
Ended = list[tuple[Lock, Entry | None]]


def multi_lock(*locks: Lock, timeout: float | None = None) -> MultiLock:
    """Return one lock of several *locks*, of one or several clients: all of them are acquired, or none.

    *locks*: what the methods of `Locks` return, except latches; each keeps its ttl and max_hold. *timeout*:
    the longest wait for all together, seconds. 0: each lock service is asked once. -1: no limit. None: the
    shortest time-out of *locks*.

    The locks are acquired in the order of prefix, name and lock service, whatever order you write, and
    released in reverse. If two of them have the same prefix and name on two lock services, as while a site
    moves from one to the other, the fence of the one that you write first counts. Returns a `MultiLock`.
    Raises `ConfigurationError` for a lock that is a row, for the same lock twice, and for the same prefix and
    name on two lock services whose order is unknown; TypeError for anything that is no lock, and without
    *locks*; TypeError, ValueError and OverflowError for an invalid *timeout*.

    Example::

        with distlock.multi_lock(orders.lock("order_7"), stock.lock("product_1"), timeout=2) as grant:
            print(grant.grants[0].fence, grant.grants[1].fence)
    """
    for one in locks:
        if not isinstance(one, Lock):
            raise TypeError(
                f"multi_lock() takes locks, as locks.lock('product_1') returns them, not {one!r}."
            )
    if not locks:
        raise TypeError("multi_lock() needs at least one lock, for example locks.lock('product_1').")
    if timeout is None:
        limits = [one.timeout for one in locks if one.timeout != -1]
        timeout = min(limits, default=-1)
    elif timeout != -1:
        check_timeout(timeout)
    return MultiLock(locks, timeout)


class MultiLock:
    """A lock of `multi_lock`. Threads and tasks may share it."""

    def __init__(self, given: Sequence[Lock], timeout: float) -> None:
        self.timeout = timeout
        self._given = tuple(given)
        # A lock for each name, because the names of several locks may alternate in the order.
        parts = [(place, part) for place, one in enumerate(given) for part in one._split()]
        parts.sort(key=lambda part: _order(part[1]))
        for (_, one), (_, other) in pairwise(parts):
            if _order(one)[:2] == _order(other)[:2]:
                _refuse_equal(one, other)
        self._places = [place for place, _ in parts]
        self._parts = [one for _, one in parts]

    def __repr__(self) -> str:
        return f"<MultiLock of {', '.join(map(repr, self._given))}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order in which they are acquired."""
        return tuple(name for one in self._parts for name in one.names)

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> JointGrant | None:
        """Acquire all of the locks: see `Lock.acquire`. Return None if one of them stays taken."""
        seconds = self._seconds(blocking, timeout)
        entries = self._entries(ThreadParker)
        try:
            return run(self._enter(entries, seconds))
        except BaseException as error:
            self._abandon(entries, error)
            if is_time_out(error):
                return None
            raise

    async def aacquire(self, blocking: bool = True, timeout: float | None = None) -> JointGrant | None:
        """`acquire`, for asyncio."""
        seconds = self._seconds(blocking, timeout)
        entries = self._entries(TaskParker)
        try:
            return await arun(self._enter(entries, seconds))
        except BaseException as error:
            self._abandon(entries, error)
            if is_time_out(error):
                return None
            raise

    def release(self) -> None:
        """Release what `acquire` of this object granted. Raises `NotHeld` if one of the locks is not held."""
        held = [one._last() for one in self._parts]
        try:
            run(self._give_back(held))
        except BaseException as error:
            self._abandon_grant(held, error)
            raise

    async def arelease(self) -> None:
        """`release`, for asyncio."""
        held = [one._last() for one in self._parts]
        try:
            await arun(self._give_back(held))
        except BaseException as error:
            self._abandon_grant(held, error)
            raise

    def locked(self) -> bool:
        """Return whether anybody, in any process, holds one of the names. Asks the lock services."""
        return any(one.locked() for one in self._parts)

    async def alocked(self) -> bool:
        """`locked`, for asyncio."""
        return await call_in_thread(self.locked)

    def owned(self) -> bool:
        """Return whether this object holds all locks and has lost none. Does not ask a lock service."""
        return all(one.owned() for one in self._parts)

    def __enter__(self) -> JointGrant:
        entries = self._entries(ThreadParker)
        try:
            self._refuse_own(entries)
            grant = run(self._enter(entries, self._longest()))
            return self._begin_block(entries, grant, sys._getframe(1))
        except BaseException as error:
            self._abandon(entries, error)
            raise

    def __exit__(self, *exc_info: Any) -> None:
        ended = None
        try:
            ended = self._find_blocks(sys._getframe(1))
            run(self._leave(ended))
        except BaseException as error:
            self._abandon_blocks(ended, error, sys._getframe(1))
            raise
        self._raise_after(ended, exc_info)

    async def __aenter__(self) -> JointGrant:
        entries = self._entries(TaskParker)
        try:
            self._refuse_own(entries)
            grant = await arun(self._enter(entries, self._longest()))
            return self._begin_block(entries, grant, sys._getframe(1))
        except BaseException as error:
            self._abandon(entries, error)
            raise

    async def __aexit__(self, *exc_info: Any) -> None:
        ended = None
        try:
            ended = self._find_blocks(sys._getframe(1))
            await arun(self._leave(ended))
        except BaseException as error:
            self._abandon_blocks(ended, error, sys._getframe(1))
            raise
        self._raise_after(ended, exc_info)

    # -- entering --------------------------------------------------------------------------------

    def _entries(self, parker: Callable[[], Parker]) -> list[Entry]:
        return [one._entry(parker()) for one in self._parts]

    def _refuse_own(self, entries: Iterable[Entry]) -> None:
        if self_deadlock.is_any_around():
            for one, entry in zip(self._parts, entries, strict=True):
                one._refuse_own(entry)

    def _enter(self, entries: Sequence[Entry], seconds: float) -> Commands[JointGrant | None]:
        deadline = clock.now() + seconds
        until = deadline + REPLY_GRACE if seconds else math.inf
        taken: list[Grant] = []
        # Refuse an upgrade before the first wait: later the refusal would come late, or never.
        for one, entry in zip(self._parts, entries, strict=True):
            if one.terms.mode == EXCLUSIVE:
                one._namespace.refuse_upgrade(one._wanted(entry), entry.owner)
        try:
            for one, entry in zip(self._parts, entries, strict=True):
                left = max(0.0, deadline - clock.now())
                if seconds and not left:
                    break
                grant = one._note_grant(entry, (yield from one._enter(entry, left)))
                if grant is None:
                    break
                taken.append(grant)
            else:
                return self._joined(taken)
        except LockError:
            # One lock service failed or refused. The others still answer, so release their locks now.
            yield from MultiGrant(taken)._release(until)
            raise
        yield from MultiGrant(taken)._release(until)
        return None

    def _joined(self, taken: Sequence[Grant]) -> JointGrant:
        of: list[list[Grant]] = [[] for _ in self._given]
        for place, grant in zip(self._places, taken, strict=True):
            of[place].append(grant)
        grant = JointGrant([one[0] if len(one) == 1 else MultiGrant(one) for one in of], taken)
        for part in (grant, *grant.grants):
            part.timeout = self.timeout
        return grant

    def _begin_block(
        self, entries: Sequence[Entry], grant: JointGrant | None, frame: FrameType
    ) -> JointGrant:
        if grant is None:
            stopped_loop = isinstance(entries[0].parker, ThreadParker) and in_event_loop()
            short = next(one for one, entry in zip(self._parts, entries, strict=True) if entry.grant is None)
            raise self_deadlock.timed_out(short._namespace, short.names, self.timeout, stopped_loop)
        for one, entry in zip(self._parts, entries, strict=True):
            one._begin_block(entry, entry.grant, frame)
        return grant

    def _abandon(self, entries: Sequence[Entry], error: BaseException) -> None:
        for one, entry in zip(reversed(self._parts), reversed(entries), strict=True):
            one._abandon_grant(entry, error)
            one._abandon(entry, error)

    def _longest(self) -> float:
        return math.inf if self.timeout == -1 else self.timeout

    def _seconds(self, blocking: bool, timeout: float | None) -> float:
        return self._parts[0]._seconds(blocking, self.timeout if blocking and timeout is None else timeout)

    # -- leaving ---------------------------------------------------------------------------------

    def _give_back(self, held: Sequence[Entry]) -> Commands[None]:
        for one, entry in zip(reversed(self._parts), reversed(held), strict=True):
            yield from one._give_back(entry)

    def _abandon_grant(self, held: Sequence[Entry], error: BaseException) -> None:
        for one, entry in zip(reversed(self._parts), reversed(held), strict=True):
            one._abandon_grant(entry, error)

    def _find_blocks(self, frame: FrameType) -> Ended:
        """Return each lock, the last one first, with its ``with`` block that *frame* ends."""
        return [(one, one._find_block(frame)) for one in reversed(self._parts)]

    def _leave(self, ended: Ended) -> Commands[None]:
        for one, block in ended:
            if block is not None:
                yield from one._leave(block)
                one._forget(block)

    def _abandon_blocks(self, ended: Ended | None, error: BaseException, frame: FrameType) -> None:
        """Have the maintenance thread release what *error* prevented `_leave` from releasing."""
        if ended is None:
            ended = self._find_blocks(frame)
        for one, block in ended:
            if block in one._entered_blocks:
                one._abandon_block(block, error, frame)

    def _raise_after(self, ended: Ended, exc_info: tuple[Any, ...]) -> None:
        for one, block in ended:
            one._raise_after(block, exc_info)


def _order(one: Lock) -> tuple[str, str, str]:
    """Return the sort key of *one*, which is the same in every process."""
    namespace = one._namespace
    return namespace.prefix, one.names[0], sort_key_of(namespace.identity)


def _refuse_equal(one: Lock, other: Lock) -> None:
    """Raise `ConfigurationError` unless *one* and *other* are on two lock services with a known order.

    They have the same prefix and name.
    """
    prefix, name, service = _order(one)
    if not service or service == _order(other)[2]:
        raise ConfigurationError(
            f"multi_lock() was given the lock {name!r} of the prefix {prefix!r} twice. On one lock service "
            "it is one lock: leave one out. On two lock services, give each client its URL, which says in "
            "which order the locks are taken, or another prefix."
        )
