"""A grant: one successful acquisition by one caller, and what ``with`` gives you."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple
from weakref import WeakSet

from distlock.engine.commands import Commands
from distlock.engine.drivers import arun, run
from distlock.errors import ConfigurationError
from distlock.terms import EXCLUSIVE, Mode


class Fence(NamedTuple):
    """The public pair ``(epoch, number)`` of a grant for one name. Later grants have larger ones."""

    epoch: int
    number: int


class Grant(ABC):
    """One successful acquisition: the lock is yours until you release it, or until it is `lost`.

    What ``with locks.lock(...)`` gives, `Lock.acquire` returns, and `distlock.current_grant` finds in a view.

    Example::

        with locks.lock("product_1") as grant:
            grant.check()               # raises LockLost if it is yours no more
            grant.remaining()           # seconds that it is yours for certain
            print(grant.fence.number)   # larger than that of every earlier grant of the name
    """

    __slots__ = ("__weakref__", "timeout")

    #: How long it might have been waited for, seconds; -1: without limit.
    timeout: float

    @property
    def since(self) -> float:
        """The moment of the grant on `distlock.clock`; ``-inf`` where it is not known."""
        return -math.inf

    @property
    @abstractmethod
    def fences(self) -> Mapping[str, Fence]:
        """The fence of each name. Later grants of a name have larger fences, in all processes."""

    @property
    @abstractmethod
    def namespace(self) -> str:
        """The prefix of the lock service: one name under two prefixes is two locks."""

    @property
    @abstractmethod
    def holder_ids(self) -> Mapping[str, str]:
        """For each name a text that no other holder has, not even one with the same fence. No secret."""

    @property
    def mode(self) -> Mode:
        """``"exclusive"``; ``"read"``: others may read at the same time; ``"permit"``: a semaphore's."""
        return EXCLUSIVE

    @property
    @abstractmethod
    def released(self) -> bool:
        """Whether it was given back."""

    @property
    @abstractmethod
    def lost(self) -> bool:
        """Whether the lock stopped being yours before it was released. Asks nobody: it is known here."""

    @property
    @abstractmethod
    def why_lost(self) -> str | None:
        """The known reason for its loss; None if it was not lost."""

    @property
    def release_requested(self) -> bool:
        """Whether somebody wants the lock back: see `distlock.Locks.request_release`. Asks nobody.

        It stays yours. Look now and then, between two parts of something long, and release it when you can.
        """
        return False

    @property
    def parts(self) -> Mapping[str, Grant]:
        """The grant of each name by itself."""
        return dict.fromkeys(self.names, self)

    @property
    def committed(self) -> bool:
        """Whether a fenced transaction was committed under it, which vouches for what was done."""
        return self in _committed

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

    @property
    def held_by_transaction(self) -> bool:
        """Whether the lock is a row that the open transaction has locked: it ends with that."""
        return False

    @property
    def unnumbered_by(self) -> str | None:
        """The backend, if that declares no growing numbers: then the fence tells nothing. Else None."""
        return None

    def downgrade(self) -> None:
        """Turn this write lock into a read lock: others may read as well, and nobody has written between.

        It stays yours until you release it. A second call changes nothing. Raises `ConfigurationError` where
        it is no write lock, or the backend has none that readers share; `NotHeld`; `LockLost`; and
        `BackendUnavailable`: call it again, and it downgrades the names that are left.
        """
        run(self._downgrade())

    async def adowngrade(self) -> None:
        """`downgrade`, for asyncio."""
        await arun(self._downgrade())

    def _downgrade(self) -> Commands[None]:
        raise ConfigurationError(
            f"The lock {', '.join(map(repr, self.names))} can't be downgraded: no write lock "
            "of a lock service holds it. Take it by locks.write_lock(…) first."
        )
        yield

    def _vouch(self) -> None:
        """A fenced transaction was committed under it: what was done stands, whatever became of the lock."""
        _committed.add(self)

    def _is_followed(self) -> bool:
        """Return whether the next caller in line, of this process, could be taken along just now."""
        return False

    def _take_along(self, batch: object) -> bool:
        """Let the next caller in line share this grant, in *batch*; False: there is none that may.

        See `distlock.terms.Seat`. It goes on at once, in its own thread.
        """
        return False

    def _join(self, first: Grant) -> None:  # noqa: B027 - most know all that they share
        """It shares the lock of *first*, which has passed the fence by now."""

    def _note_commit(self) -> None:  # noqa: B027 - most have nobody to tell
        """The transaction of its guard was committed."""

    @abstractmethod
    def _release(self, until: float = math.inf) -> Commands[None]:
        """Give it back. *until*: the moment after which the keeper does so."""

    @abstractmethod
    def _abandon(self, error: BaseException) -> None:
        """Give it back without I/O here: the keeper does it. For callers that *error* interrupts."""

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
        try:
            run(self._release())
        except BaseException as error:
            self._abandon(error)
            raise

    async def arelease(self) -> None:
        """`release`, for asyncio."""
        try:
            await arun(self._release())
        except BaseException as error:
            self._abandon(error)
            raise


#: Called with a grant that somebody wants back, in a thread of its own.
OnReleaseRequested = Callable[[Grant], object]

#: The names whose fence vouches for what was committed under them.
_committed: WeakSet[Grant] = WeakSet()


class GrantWrapper(Grant):
    """*grant* as it is, for clients that do more at its end."""

    __slots__ = ("_grant",)

    def __init__(self, grant: Grant) -> None:
        self._grant = grant

    def __repr__(self) -> str:
        return repr(self._grant)

    @property
    def since(self) -> float:
        return self._grant.since

    @property
    def fences(self) -> Mapping[str, Fence]:
        return self._grant.fences

    @property
    def namespace(self) -> str:
        return self._grant.namespace

    @property
    def holder_ids(self) -> Mapping[str, str]:
        return self._grant.holder_ids

    @property
    def mode(self) -> Mode:
        return self._grant.mode

    @property
    def released(self) -> bool:
        return self._grant.released

    @property
    def lost(self) -> bool:
        return self._grant.lost

    @property
    def why_lost(self) -> str | None:
        return self._grant.why_lost

    @property
    def release_requested(self) -> bool:
        return self._grant.release_requested

    @property
    def held_by_transaction(self) -> bool:
        return self._grant.held_by_transaction

    @property
    def unnumbered_by(self) -> str | None:
        return self._grant.unnumbered_by

    def remaining(self) -> float:
        return self._grant.remaining()

    def check(self) -> None:
        self._grant.check()

    def lift(self, name: str, number: int) -> bool:
        return self._grant.lift(name, number)

    def _downgrade(self) -> Commands[None]:
        return self._grant._downgrade()

    def _is_followed(self) -> bool:
        return self._grant._is_followed()

    def _take_along(self, batch: object) -> bool:
        return self._grant._take_along(batch)

    def _join(self, first: Grant) -> None:
        self._grant._join(first)

    def _note_commit(self) -> None:
        self._grant._note_commit()

    def _release(self, until: float = math.inf) -> Commands[None]:
        return self._grant._release(until)

    def _abandon(self, error: BaseException) -> None:
        self._grant._abandon(error)
