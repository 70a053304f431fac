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


#: Somebody, and the names that he is inside.
Entry = tuple[Owner, tuple[str, ...]]

#: Who is inside which names. It belongs to the client: two objects of the same names are the same lock.
Inside = dict[Entry, Entered]


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
        if (grant := self._leave((current_owner(), self.names))) is not None:
            grant.release()

    async def arelease(self) -> None:
        """`release`, for asyncio."""
        if (grant := self._leave((current_owner(), self.names))) is not None:
            await grant.arelease()

    def owned(self) -> bool:
        """Whether the caller is inside, and the lock is not lost."""
        entered = self._inside.get((current_owner(), self.names))
        return entered is not None and not entered.grant.released and not entered.grant.lost

    def __exit__(self, *exc_info: object) -> None:
        if (entry := self._ended()) is not None:
            if (grant := self._leave(entry)) is not None:
                grant.release()
            self._refuse_stranger(entry)

    async def __aexit__(self, *exc_info: object) -> None:
        if (entry := self._ended()) is not None:
            if (grant := self._leave(entry)) is not None:
                await grant.arelease()
            self._refuse_stranger(entry)

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

    def _leave(self, entry: Entry) -> Grant | None:
        """Leave once, as *entry*. What that releases, if it was the last time."""
        entered = self._inside.get(entry)
        if entered is None:
            names = ", ".join(map(repr, self.names))
            raise NotHeld(f"The lock {names} was to be released by somebody who does not hold it.")
        entered.count -= 1
        if entered.count:
            return None
        del self._inside[entry]
        return entered.grant

    def _ended(self) -> Entry | None:
        """As whom the ``with`` block that ends was entered; None if nothing of it is left to leave."""
        mine = current_owner(), self.names
        with self._locks._engine.books:
            for entry in (mine,) if mine in self._inside else tuple(self._inside):
                entered = self._inside.get(entry)
                if entered is not None and entered.grant in self._entered:
                    self._entered.remove(entered.grant)
                    return entry
            # The client was closed inside: that is no reason to hide what the body raised.
            self._entered.clear()
        return None

    def _refuse_stranger(self, entry: Entry) -> None:
        # Left it is all the same: nobody else would ever do it.
        if entry[0] != current_owner():
            names = ", ".join(map(repr, self.names))
            raise NotHeld(
                f"The 'with' block of rlock({names}) was left in another thread or task than it was entered "
                f"in, where its owner is: write lock({names}), which has none, or leave it where it was "
                "entered."
            )
