"""The grant of one name, carved from a hold."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Protocol

from distlock.backends.base import Backend
from distlock.engine.steps import Steps, run
from distlock.errors import BackendUnavailable, LockLost, NotHeld
from distlock.grant import Fence, Grant
from distlock.modes import Mode
from distlock.terms import Terms

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
    def downgrade(self, grant: NameGrant) -> Steps[None]: ...
    def acknowledge(self, hold: Hold) -> Steps[None]: ...
    def is_followed(self, grant: NameGrant) -> bool: ...
    def take_along(self, grant: NameGrant, batch: object) -> bool: ...
    def why_ended(self, hold: Hold) -> str: ...


class NameGrant(Grant):
    __slots__ = ("_ends", "_fence", "_grantor", "_hold", "_lost_at_end", "_terms", "mode", "name", "since")

    mode: Mode

    def __init__(
        self, grantor: Grantor, hold: Hold, name: str, fence: Fence, since: float, terms: Terms
    ) -> None:
        self._grantor = grantor
        self._hold = hold
        self._fence = fence
        #: Whether it was lost when it was released; None until then. Its hold may go on to others.
        self._lost_at_end: bool | None = None
        self._terms = terms
        self.mode = terms.mode
        #: When it has read for too long. A writer's hold is not renewed any more then.
        self._ends = math.inf
        self.name = name
        self.since = since

    def __repr__(self) -> str:
        return f"<Grant {self.name!r} fence={self._fence.era}:{self._fence.number} {self._state()}>"

    def _state(self) -> str:
        return "released" if self.released else f"lost: {self.why_lost}" if self.lost else "held"

    def shown(self) -> str:
        """What a line of the log calls it."""
        return f"lock {self.name!r} (fence {self._fence.era}:{self._fence.number})"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def where(self) -> str | CodeType | None:
        """What wanted it: see `distlock.terms.Terms`."""
        return self._terms.where

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
        hold = self._hold
        now = self._grantor.now()
        return hold.lost is not None or now >= hold.deadline or now >= self._ends

    @property
    def why_lost(self) -> str | None:
        if not self.lost:
            return None
        if self._hold.lost is None and self._grantor.now() >= self._ends:
            return f"it was held longer than max_hold={self._terms.max_hold:g} seconds"
        return self._hold.lost or self._grantor.why_ended(self._hold)

    @property
    def release_requested(self) -> bool:
        return self._hold.release_requested

    def end(self) -> bool:
        """It is being released. False if it was before."""
        if self._lost_at_end is not None:
            return False
        hold = self._hold
        now = self._grantor.now()
        self._lost_at_end = hold.lost is not None or now >= hold.deadline or now >= self._ends
        return True

    def end_lost(self, why: str) -> None:
        """The lock service did not know of it any more when it was released."""
        self._hold.lost = why
        self._lost_at_end = True

    def remaining(self) -> float:
        if self.released or self._hold.lost:
            return 0.0
        return max(0.0, min(self._hold.deadline, self._ends) - self._grantor.now())

    def check(self) -> None:
        if self._lost_at_end is not None:
            raise NotHeld(f"The lock {self.name!r} was released before it was checked.")
        if not self._hold.acknowledged:
            try:
                run(self._grantor.acknowledge(self._hold))
            except BackendUnavailable as error:
                raise LockLost(
                    f"The lock {self.name!r} was handed over, and could not be confirmed: {error} Undo what "
                    "was done under it, and retry."
                ) from error
        if (why := self.why_lost) is not None:
            raise LockLost(f"The lock {self.name!r} was lost: {why}. Undo what was done under it, and retry.")

    def lift(self, name: str, number: int) -> bool:
        return run(self._grantor.lift(self, number))

    def _is_followed(self) -> bool:
        return self._grantor.is_followed(self)

    def _take_along(self, batch: object) -> bool:
        return self._grantor.take_along(self, batch)

    def _downgrade(self) -> Steps[None]:
        return self._grantor.downgrade(self)

    def _release(self, until: float = math.inf) -> Steps[None]:
        return self._grantor.release(self, until)

    def _let_go(self, error: BaseException) -> None:
        self._grantor.let_go(self, error)
