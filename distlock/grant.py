"""A grant: one successful acquisition by one caller, and what ``with`` gives you."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from distlock.errors import LockLost, NotHeld
from distlock.steps import Steps, arun, run

if TYPE_CHECKING:
    from distlock.engine import Engine
    from distlock.hold import Hold


class Fence(NamedTuple):
    """The public, ever-growing number of a grant for one name. Compare whole fences, not numbers."""

    era: int
    number: int


class Grant:
    """The lock is yours until you release it or it is `lost`."""

    __slots__ = ("_engine", "_hold", "fence", "name", "released", "since")

    def __init__(self, engine: Engine, hold: Hold, name: str, fence: Fence, since: float) -> None:
        self._engine = engine
        self._hold = hold
        self.name = name
        #: Later grants for this name have larger fences, in all processes.
        self.fence = fence
        self.since = since
        self.released = False

    def __repr__(self) -> str:
        state = "released" if self.released else f"lost: {self._hold.lost}" if self.lost else "held"
        return f"<Grant {self.name!r} fence={self.fence.era}:{self.fence.number} {state}>"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def fences(self) -> Mapping[str, Fence]:
        """The fence of each name."""
        return {self.name: self.fence}

    @property
    def lost(self) -> bool:
        """Whether the lock stopped being ours before it was released. Asks nobody: it is known here."""
        return self._hold.lost is not None or self._engine.now() >= self._hold.deadline

    def remaining(self) -> float:
        """Seconds that the lock is ours for certain, if nothing renews it; ``inf`` where there is no lease.

        Time in which the machine was suspended counts.
        """
        if self.released or self._hold.lost:
            return 0.0
        return max(0.0, self._hold.deadline - self._engine.now())

    def check(self) -> None:
        """Raise `LockLost` if the lock is no longer ours, `NotHeld` if it was released."""
        if self.released:
            raise NotHeld(f"The lock {self.name!r} was released before it was checked.")
        if self.lost:
            why = self._hold.lost or "its lease ended before it could be renewed"
            raise LockLost(f"The lock {self.name!r} was lost: {why}. Undo what was done under it, and retry.")

    def release(self) -> None:
        """Give the lock back. Any thread may; a second time does nothing. Never raises for a lost lock."""
        run(self._release())

    async def arelease(self) -> None:
        """`release`, for asyncio."""
        await arun(self._release())

    def _release(self) -> Steps[None]:
        return self._engine.release(self)


class Grants:
    """Several names granted as one: all of them, or none."""

    __slots__ = ("_grants",)

    def __init__(self, grants: Sequence[Grant]) -> None:
        self._grants = tuple(grants)

    def __repr__(self) -> str:
        return f"<Grants {list(self._grants)!r}>"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(grant.name for grant in self._grants)

    @property
    def fence(self) -> Fence:
        """There is one only for a single name: raises `AttributeError` and names `fences`."""
        raise AttributeError(f"{len(self._grants)} names have {len(self._grants)} fences: use fences[name].")

    @property
    def fences(self) -> Mapping[str, Fence]:
        """The fence of each name."""
        return {grant.name: grant.fence for grant in self._grants}

    @property
    def released(self) -> bool:
        return all(grant.released for grant in self._grants)

    @property
    def lost(self) -> bool:
        """Whether any of the names was lost."""
        return any(grant.lost for grant in self._grants)

    def remaining(self) -> float:
        """The least of the names' remaining seconds."""
        return min((grant.remaining() for grant in self._grants), default=math.inf)

    def check(self) -> None:
        """Raise `LockLost` if any of the names was lost, `NotHeld` if they were released."""
        for grant in self._grants:
            grant.check()

    def release(self) -> None:
        """Give all names back, the last one first."""
        run(self._release())

    async def arelease(self) -> None:
        """`release`, for asyncio."""
        await arun(self._release())

    def _release(self) -> Steps[None]:
        for grant in reversed(self._grants):
            yield from grant._release()
