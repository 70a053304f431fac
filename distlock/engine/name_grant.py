"""The grant of one name, carved from a hold."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Protocol

from distlock.backends.base import Backend
from distlock.engine.steps import Steps, run
from distlock.errors import LockLost, NotHeld
from distlock.grant import Fence, Grant

if TYPE_CHECKING:
    from distlock.engine.hold import Hold


class Grantor(Protocol):
    """Where grants come from, and go back to: the engine."""

    #: What numbers the holds.
    backend: Backend
    #: Seconds, on the clock of the leases.
    now: Callable[[], float]

    def release(self, grant: NameGrant, until: float = math.inf) -> Steps[None]: ...
    def let_go(self, grant: NameGrant, error: BaseException) -> None: ...
    def lift(self, grant: NameGrant, number: int) -> Steps[bool]: ...
    def is_followed(self, grant: NameGrant) -> bool: ...
    def take_along(self, grant: NameGrant, batch: object) -> bool: ...
    def why_ended(self, hold: Hold) -> str: ...


class NameGrant(Grant):
    __slots__ = ("_fence", "_grantor", "_hold", "_lost_at_end", "name", "since")

    def __init__(self, grantor: Grantor, hold: Hold, name: str, fence: Fence, since: float) -> None:
        self._grantor = grantor
        self._hold = hold
        self._fence = fence
        #: Whether it was lost when it was released; None until then. Its hold may go on to others.
        self._lost_at_end: bool | None = None
        self.name = name
        self.since = since

    def __repr__(self) -> str:
        state = "released" if self.released else f"lost: {self._hold.lost}" if self.lost else "held"
        return f"<Grant {self.name!r} fence={self._fence.era}:{self._fence.number} {state}>"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def where(self) -> str | CodeType | None:
        """What wanted it: see `distlock.terms.Terms`. True while it is out, also when it is lost."""
        waiter = self._hold.waiter
        return None if waiter is None else waiter.terms.where

    @property
    def fence(self) -> Fence:
        return self._fence

    @property
    def fences(self) -> Mapping[str, Fence]:
        return {self.name: self._fence}

    @property
    def domain(self) -> str:
        return self._hold.ask.key.partition(":")[0]

    @property
    def seals(self) -> Mapping[str, str]:
        # The token itself stays here: a process that has it could release the lock.
        return {self.name: hashlib.blake2b(self._hold.ask.token.encode(), digest_size=16).hexdigest()}

    @property
    def unnumbered_by(self) -> str | None:
        backend = self._grantor.backend
        return None if backend.capabilities.fence else type(backend).__qualname__

    @property
    def released(self) -> bool:
        return self._lost_at_end is not None

    @property
    def lost(self) -> bool:
        if self._lost_at_end is not None:
            return self._lost_at_end
        return self._hold.lost is not None or self._grantor.now() >= self._hold.deadline

    @property
    def why_lost(self) -> str | None:
        if not self.lost:
            return None
        return self._hold.lost or self._grantor.why_ended(self._hold)

    def end(self) -> bool:
        """It is being released. False if it was before."""
        if self._lost_at_end is not None:
            return False
        self._lost_at_end = self.lost
        return True

    def end_lost(self, why: str) -> None:
        """The lock service did not know of it any more when it was released."""
        self._hold.lost = why
        self._lost_at_end = True

    def remaining(self) -> float:
        if self.released or self._hold.lost:
            return 0.0
        return max(0.0, self._hold.deadline - self._grantor.now())

    def check(self) -> None:
        if self._lost_at_end is not None:
            raise NotHeld(f"The lock {self.name!r} was released before it was checked.")
        if (why := self.why_lost) is not None:
            raise LockLost(f"The lock {self.name!r} was lost: {why}. Undo what was done under it, and retry.")

    def lift(self, name: str, number: int) -> bool:
        return run(self._grantor.lift(self, number))

    def _is_followed(self) -> bool:
        return self._grantor.is_followed(self)

    def _take_along(self, batch: object) -> bool:
        return self._grantor.take_along(self, batch)

    def _release(self, until: float = math.inf) -> Steps[None]:
        return self._grantor.release(self, until)

    def _let_go(self, error: BaseException) -> None:
        self._grantor.let_go(self, error)
