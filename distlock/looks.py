"""What a client tells of its locks, and passes on to those that hold them.

The calls for asyncio go through a thread of the event loop: nobody waits for a lock in them, and what is slow
there keeps no task from giving a lock back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from distlock.modes import Kind
from distlock.names import check_name
from distlock.operate.looking import Listed, LockState, inspect, list_locks

if TYPE_CHECKING:
    from distlock.namespace import Namespace

#: How many are listed before a task goes on.
_AT_ONCE = 100


class Looks:
    """What `distlock.Locks` has of it."""

    namespace: Namespace

    def inspect(self, name: str, kind: Kind = "lock") -> LockState:
        """The holder of *name*, since when, and those that wait for it, in order: a picture of one moment.

        *kind*: what has the name, "lock", "semaphore" or "latch". Asks the lock service, and changes nothing.
        Raises `InvalidName`; `BackendUnavailable`; `ConfigurationError` for another *kind*, and where the
        lock service does not show it.

        Example::

            print(locks.inspect("product_1").holder, locks.inspect("gateway", "semaphore").inside)
        """
        return inspect(self.namespace, name, kind)

    async def ainspect(self, name: str, kind: Kind = "lock") -> LockState:
        """`inspect`, for asyncio."""
        return await asyncio.to_thread(self.inspect, name, kind)

    def list(self, before: str = "") -> Iterator[Listed]:
        """What is held or waited for, in all processes, for longer than about three seconds.

        First locks, then semaphores, then latches, each with its kind. *before*: what the names
        begin with. Each process says of itself what it has, every few seconds; where the lock service knows
        that, it is what is so just now.
        It is read in small parts while you go through it, so it is no picture of one moment.
        Raises `BackendUnavailable`; `ConfigurationError` where the lock service does not show it.

        Example::

            for one in locks.list("product_"):
                print(one.name, "held" if one.held else "waited for", one.party)
        """
        return list_locks(self.namespace, before)

    async def alist(self, before: str = "") -> AsyncIterator[Listed]:
        """`list`, for asyncio: ``async for one in locks.alist("product_")``."""
        listed = self.list(before)
        while some := await asyncio.to_thread(_some, listed):
            for one in some:
                yield one

    def request_release(self, name: str) -> bool:
        """Ask the holder of *name*, in any process, to give it back. Returns whether anybody holds it.

        Nothing is taken by force, and it does not wait. The holder sees `Grant.release_requested`, and what
        it gave as *on_release_requested* is called: at once, or within some seconds, as the page of its
        backend says. A later grant of the name knows nothing of it. Raises `InvalidName`;
        `BackendUnavailable`; `ConfigurationError` where the lock service can't do it.

        Example::

            if locks.request_release("catalogue"):
                print("An import runs, and was asked to stop.")
        """
        return self.namespace.request_release(check_name(name))

    async def arequest_release(self, name: str) -> bool:
        """`request_release`, for asyncio. One that is cancelled may have asked, or may still ask."""
        return await asyncio.to_thread(self.request_release, name)


def _some(listed: Iterator[Listed]) -> tuple[Listed, ...]:
    return tuple(islice(listed, _AT_ONCE))
