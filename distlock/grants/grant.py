"""A grant: one successful acquisition by one caller, and what ``with`` gives you."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple

from distlock.engine.sans_io import Commands, arun, run
from distlock.errors import ConfigurationError
from distlock.terms import EXCLUSIVE, Mode


class Fence(NamedTuple):
    """The public pair ``(epoch, number)`` of a grant for one name. Later writers have larger fences."""

    epoch: int
    number: int


class Grant(ABC):
    """One successful acquisition: the lock is yours until you release it, or until it is `lost`.

    ``with locks.lock(...)`` and `Lock.acquire` return it, and `distlock.current_grant` finds it in a view.

    Example::

        with locks.lock("product_1") as grant:
            grant.check()               # raises LockLost if the lock is no longer yours
            grant.remaining()           # seconds that the lock is yours for certain
            print(grant.fence.number)   # larger than that of every earlier grant of the name
    """

    __slots__ = ("__weakref__", "_vouched", "timeout")

    #: The timeout of the lock or guard that acquired the grant, seconds; -1: no limit. A fenced transaction
    #: waits as long for earlier ones, so the time-out of one `Lock.acquire` does not change it.
    timeout: float

    @property
    def since(self) -> float:
        """The moment of the grant on `distlock.clock`; ``-inf`` if it is unknown."""
        return -math.inf

    @property
    @abstractmethod
    def fences(self) -> Mapping[str, Fence]:
        """The fence of each name. Later writers have larger fences, in all processes; readers share one."""

    @property
    @abstractmethod
    def namespace(self) -> str:
        """The prefix of the names: one name under two prefixes is two locks."""

    @property
    @abstractmethod
    def holder_ids(self) -> Mapping[str, str]:
        """For each name, a text that identifies the hold, and is no secret.

        Grants of one hold share it. Two holds never do, even if the lock service has lost its data and gives
        both the same fence.
        """

    @property
    def mode(self) -> Mode:
        """``"exclusive"``; ``"read"``: others may read at the same time; ``"permit"``: a semaphore's."""
        return EXCLUSIVE

    @property
    @abstractmethod
    def released(self) -> bool:
        """Whether the lock was released."""

    @property
    @abstractmethod
    def lost(self) -> bool:
        """Whether the lock stopped being yours before its release, as far as this process knows. No I/O."""

    @property
    @abstractmethod
    def why_lost(self) -> str | None:
        """The known reason for its loss; None if it was not lost."""

    @property
    def release_requested(self) -> bool:
        """Whether its release was requested: see `distlock.Locks.request_release`. Does no I/O.

        The lock stays yours. During long work, check this now and then, and release the lock when you can.
        """
        return False

    @property
    def parts(self) -> Mapping[str, Grant]:
        """A separate grant for each name."""
        return dict.fromkeys(self.names, self)

    @property
    def committed(self) -> bool:
        """Whether ``atomic(grant)`` or ``transaction(grant, …)`` has committed under this grant.

        What was committed stands even if the lock is lost. A guard's own transaction does not count.
        """
        return getattr(self, "_vouched", False)

    @abstractmethod
    def remaining(self) -> float:
        """Return for how many seconds the lock is certainly yours without a renewal.

        ``inf`` if the backend has no leases; 0 if the lock was released or lost.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise `LockLost` if the lock is no longer yours, `NotHeld` if it was released.

        The lock service is asked only after a hand-off by push that it has not confirmed yet.
        """

    @abstractmethod
    def raise_fence(self, name: str, number: int) -> bool:
        """Raise the fence of *name* above *number*, if the lock service says that the lock is still yours.

        This is needed after the lock service has lost its data, if a fence row still has a larger *number*.
        Return whether the grant got a larger fence. Raises `BackendUnavailable`; `ConfigurationError` if the
        service can't count that far.
        """

    @property
    def held_by_transaction(self) -> bool:
        """Whether the lock is a row that a transaction locks, so that it ends with the transaction."""
        return False

    @property
    def unnumbered_by(self) -> str | None:
        """The name of the backend if its numbers do not grow, so that the fence means nothing; else None."""
        return None

    def downgrade(self) -> None:
        """Turn this write lock into a read lock, so that others may read. No other writer comes in between.

        The lock stays yours until you release it. A second call changes nothing. Raises `ConfigurationError`
        if this is no write lock, or if the backend has no read locks; `NotHeld`; `LockLost`;
        `BackendUnavailable`: call it again then, to downgrade the remaining names.
        """
        run(self._downgrade())

    async def adowngrade(self) -> None:
        """Do the same as `downgrade`, for asyncio."""
        await arun(self._downgrade())

    def _downgrade(self) -> Commands[None]:
        raise ConfigurationError(
            f"The lock {', '.join(map(repr, self.names))} can't be downgraded: no write lock "
            "of a lock service holds it. Take it by locks.write_lock(…) first."
        )
        yield

    def _vouch(self) -> None:
        """Note that a fenced transaction was committed under it: see `committed`."""
        self._vouched = True

    def _is_followed(self) -> bool:
        """Return whether the next local waiter could share this grant in a batch now."""
        return False

    def _take_along(self, batch: object) -> bool:
        """Let the next local waiter share this grant in *batch*. Return False if none may.

        See `distlock.terms.Seat`. The waiter goes on at once, in its own thread.
        """
        return False

    def _join(self, first: Grant) -> None:  # noqa: B027 - most grants need nothing of *first*
        """Note that this grant shares the lock of its batch's grant, *first*, which has passed the fence."""

    def _keep_if_killed(self) -> None:  # noqa: B027 - most grants end with their process or with their ttl
        """Let the lock last for its ttl if the process dies: see `distlock.engine.recovery`."""

    def _note_commit(self) -> None:  # noqa: B027 - most grants need not know
        """Note that the transaction of its guard was committed."""

    @abstractmethod
    def _release(self, until: float = math.inf) -> Commands[None]:
        """Release the lock. After the moment *until*, leave that to the maintenance thread."""

    @abstractmethod
    def _abandon(self, error: BaseException) -> None:
        """Let the maintenance thread release the lock, because *error* has interrupted the caller. No I/O."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.fences)

    @property
    def fence(self) -> Fence:
        """The fence of the only name. Raises `AttributeError` if there are several: see `fences`."""
        fences = list(self.fences.values())
        if len(fences) != 1:
            raise AttributeError(f"{len(fences)} names have {len(fences)} fences: use fences[name].")
        return fences[0]

    def release(self) -> None:
        """Release the lock, from any thread. A second call does nothing, and a lost lock raises no error."""
        try:
            run(self._release())
        except BaseException as error:
            self._abandon(error)
            raise

    async def arelease(self) -> None:
        """Do the same as `release`, for asyncio."""
        try:
            await arun(self._release())
        except BaseException as error:
            self._abandon(error)
            raise


#: Called, in a thread of its own, with a grant whose release was requested.
OnReleaseRequested = Callable[[Grant], object]


class GrantWrapper(Grant):
    """A grant that delegates to *grant*. Subclasses override what differs."""

    __slots__ = ("_grant",)

    def __init__(self, grant: Grant) -> None:
        self._grant = grant

    def __repr__(self) -> str:
        return repr(self._grant)

    def __eq__(self, other: object) -> bool:
        # Callbacks and signals get the wrapped grant, which users compare with their own.
        return self._grant == (other._grant if isinstance(other, GrantWrapper) else other)

    def __hash__(self) -> int:
        return hash(self._grant)

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

    def raise_fence(self, name: str, number: int) -> bool:
        return self._grant.raise_fence(name, number)

    def _downgrade(self) -> Commands[None]:
        return self._grant._downgrade()

    def _is_followed(self) -> bool:
        return self._grant._is_followed()

    def _take_along(self, batch: object) -> bool:
        return self._grant._take_along(batch)

    def _join(self, first: Grant) -> None:
        self._grant._join(first)

    def _keep_if_killed(self) -> None:
        self._grant._keep_if_killed()

    def _note_commit(self) -> None:
        self._grant._note_commit()

    def _release(self, until: float = math.inf) -> Commands[None]:
        return self._grant._release(until)

    def _abandon(self, error: BaseException) -> None:
        self._grant._abandon(error)
