"""A re-entrant lock, as `threading.RLock`: its owner may take it again, and no other may release it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlock.errors import NotHeld
from distlock.grant import Grant
from distlock.lock import Lock
from distlock.owner import Owner, current_owner
from distlock.steps import TaskGate, ThreadGate, arun, run

if TYPE_CHECKING:
    from distlock.locks import Locks


@dataclass
class Entered:
    """How often its owner is inside."""

    grant: Grant
    count: int = 1


#: Who is inside which names. It belongs to the client: two objects of the same names are the same lock.
Inside = dict[tuple[Owner, tuple[str, ...]], Entered]


class RLock(Lock):
    """What `Locks.rlock` returns. The owner is the running thread, or the running task in it.

    A task made by `asyncio.gather` is another owner than its parent. Taking it again costs no round trip
    and returns the same grant.
    """

    def __init__(self, locks: Locks, names: tuple[str, ...], timeout: float | None, ttl: float) -> None:
        super().__init__(locks, names, timeout, ttl)
        self._inside = locks._engine.inside

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> Grant | None:
        """As `Lock.acquire`; at once if the caller is inside already."""
        seconds = self._seconds(blocking, timeout)
        return self._again() or self._first(run(self._steps(ThreadGate(), seconds)))

    async def aacquire(self, blocking: bool = True, timeout: float | None = None) -> Grant | None:
        """`acquire`, for asyncio."""
        seconds = self._seconds(blocking, timeout)
        return self._again() or self._first(await arun(self._steps(TaskGate(), seconds)))

    def release(self) -> None:
        """Leave once. The last time releases the lock. Raises `NotHeld` for anybody but the owner."""
        if (grant := self._leave()) is not None:
            grant.release()

    async def arelease(self) -> None:
        """`release`, for asyncio."""
        if (grant := self._leave()) is not None:
            await grant.arelease()

    def owned(self) -> bool:
        """Whether the caller is inside, and the lock is not lost."""
        entered = self._inside.get((current_owner(), self.names))
        return entered is not None and not entered.grant.released and not entered.grant.lost

    def __enter__(self) -> Grant:
        return self._granted(self.acquire())

    async def __aenter__(self) -> Grant:
        return self._granted(await self.aacquire())

    def __exit__(self, *exc_info: object) -> None:
        # The client may have been closed inside: that is no reason to hide what the body raised.
        if (current_owner(), self.names) in self._inside:
            self.release()

    async def __aexit__(self, *exc_info: object) -> None:
        if (current_owner(), self.names) in self._inside:
            await self.arelease()

    def _again(self) -> Grant | None:
        entered = self._inside.get((current_owner(), self.names))
        if entered is None or entered.grant.released:
            return None
        entered.count += 1
        return entered.grant

    def _first(self, grant: Grant | None) -> Grant | None:
        if grant is not None:
            self._inside[current_owner(), self.names] = Entered(grant)
        return grant

    def _leave(self) -> Grant | None:
        me = current_owner(), self.names
        entered = self._inside.get(me)
        if entered is None:
            names = ", ".join(map(repr, self.names))
            raise NotHeld(f"The lock {names} was to be released by somebody who does not hold it.")
        entered.count -= 1
        if entered.count:
            return None
        del self._inside[me]
        return entered.grant
