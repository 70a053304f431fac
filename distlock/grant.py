"""A grant: one successful acquisition by one caller, and what ``with`` gives you."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from distlock.errors import LockLost, NotHeld
from distlock.faces import face
from distlock.lifting import lift
from distlock.steps import Steps, arun, run

if TYPE_CHECKING:
    from distlock.engine import Engine
    from distlock.hold import Hold


class Fence(NamedTuple):
    """The public, ever-growing number of a grant for one name. Compare whole fences, not numbers."""

    era: int
    number: int


class Grant(ABC):
    """The lock is yours until you release it or it is `lost`."""

    __slots__ = ("__weakref__", "timeout")

    #: How long it might have been waited for, seconds; -1: without limit.
    timeout: float

    @property
    @abstractmethod
    def fences(self) -> Mapping[str, Fence]:
        """The fence of each name. Later grants of a name have larger fences, in all processes."""

    @property
    @abstractmethod
    def domain(self) -> str:
        """The prefix of the lock service: one name under two prefixes is two locks."""

    @property
    @abstractmethod
    def seals(self) -> Mapping[str, str]:
        """For each name a text that no other holder has, not even one with the same fence. No secret."""

    @property
    @abstractmethod
    def released(self) -> bool:
        """Whether it was given back."""

    @property
    @abstractmethod
    def lost(self) -> bool:
        """Whether the lock stopped being yours before it was released. Asks nobody: it is known here."""

    @abstractmethod
    def remaining(self) -> float:
        """Seconds that the lock is yours for certain, if nothing renews it; ``inf`` where there is no lease.

        Time in which the machine was suspended counts.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise `LockLost` if the lock is no longer yours, `NotHeld` if it was released."""

    @abstractmethod
    def lift(self, name: str, number: int) -> bool:
        """Go on with a fence of *name* above *number*, if the lock service says that the lock is yours still.

        For the fence, whose row remembers *number* although the service does not. Raises
        `BackendUnavailable`; `ConfigurationError` if the service can't count so far.
        """

    def atomic(self, using: str | None = None) -> AbstractContextManager[None]:
        """A transaction of Django that is committed only if no later grant's was, and the lock is still ours.

        ``with locks.lock("product_1") as grant, grant.atomic():``. *using*: which database; None: the default
        one. It waits for the transactions of earlier grants as long as the lock may be waited for. Raises
        `LockLost`, `LockTimeout`; `ConfigurationError` in an open transaction and in async code.
        """
        transaction: AbstractContextManager[None] = face("django_distlock.own").atomic(
            self, using, self.timeout
        )
        return transaction

    def transaction(self, session: Any, engine: Any = None) -> AbstractContextManager[None]:
        """A transaction of SQLAlchemy that is committed only if no later grant's was: see `atomic`.

        *session*: a ``Session``, or ``db.session``, that has begun no transaction yet. It is committed at the
        end of the block, and what it knew before is read anew. *engine*: whose database has the fence; None:
        the session's.
        """
        transaction: AbstractContextManager[None] = face("flask_distlock.own").transaction(
            self, session, engine, self.timeout
        )
        return transaction

    @abstractmethod
    def _release(self) -> Steps[None]: ...

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.fences)

    @property
    def fence(self) -> Fence:
        """The fence of the one name. Raises `AttributeError` where there are several: see `fences`."""
        fences = list(self.fences.values())
        if len(fences) != 1:
            raise AttributeError(f"{len(fences)} names have {len(fences)} fences: use fences[name].")
        return fences[0]

    def release(self) -> None:
        """Give the lock back. Any thread may; a second time does nothing. Never raises for a lost lock."""
        run(self._release())

    async def arelease(self) -> None:
        """`release`, for asyncio."""
        await arun(self._release())


class NameGrant(Grant):
    """One name, carved from a hold."""

    __slots__ = ("_engine", "_fence", "_hold", "_lost_at_end", "name", "since")

    def __init__(self, engine: Engine, hold: Hold, name: str, fence: Fence, since: float) -> None:
        self._engine = engine
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
        # The token itself stays here: whoever has it can give the lock away.
        return {self.name: hashlib.blake2b(self._hold.ask.token.encode(), digest_size=16).hexdigest()}

    @property
    def released(self) -> bool:
        return self._lost_at_end is not None

    @property
    def lost(self) -> bool:
        if self._lost_at_end is not None:
            return self._lost_at_end
        return self._hold.lost is not None or self._engine.now() >= self._hold.deadline

    def end(self) -> bool:
        """It is being released. False if it was before."""
        if self._lost_at_end is not None:
            return False
        self._lost_at_end = self.lost
        return True

    def remaining(self) -> float:
        if self.released or self._hold.lost:
            return 0.0
        return max(0.0, self._hold.deadline - self._engine.now())

    def check(self) -> None:
        if self.released:
            raise NotHeld(f"The lock {self.name!r} was released before it was checked.")
        if self.lost:
            why = self._hold.lost or "its lease ended before it could be renewed"
            raise LockLost(f"The lock {self.name!r} was lost: {why}. Undo what was done under it, and retry.")

    def lift(self, name: str, number: int) -> bool:
        return run(lift(self._engine, self, number))

    def _release(self) -> Steps[None]:
        return self._engine.release(self)


class NamesGrant(Grant):
    """Several names granted as one: all of them, or none."""

    __slots__ = ("_grants",)

    def __init__(self, grants: Sequence[NameGrant]) -> None:
        self._grants = tuple(grants)

    def __repr__(self) -> str:
        return f"<Grant of {', '.join(map(repr, self._grants))}>"

    @property
    def fences(self) -> Mapping[str, Fence]:
        return {grant.name: grant.fence for grant in self._grants}

    @property
    def domain(self) -> str:
        return self._grants[0].domain

    @property
    def seals(self) -> Mapping[str, str]:
        return {name: seal for grant in self._grants for name, seal in grant.seals.items()}

    @property
    def released(self) -> bool:
        return all(grant.released for grant in self._grants)

    @property
    def lost(self) -> bool:
        return any(grant.lost for grant in self._grants)

    def remaining(self) -> float:
        return min(grant.remaining() for grant in self._grants)

    def check(self) -> None:
        for grant in self._grants:
            grant.check()

    def lift(self, name: str, number: int) -> bool:
        return any(grant.lift(name, number) for grant in self._grants if grant.name == name)

    def _release(self, until: float = math.inf) -> Steps[None]:
        # The reverse of the order in which they were taken.
        rest = list(self._grants)
        try:
            while rest:
                grant = rest.pop()
                yield from grant._engine.release(grant, until)
        except BaseException as error:
            for grant in rest:
                grant._engine.let_go(grant, error)
            raise
