"""A hold, which this process owns on the lock service, and the grants that its callers get from it.

An exclusive hold has one grant at a time. When the grant ends, the next caller may get the hold. Readers
share a hold, and each of them has a grant. A hold of permits has one grant; a wait queue may have several
such holds.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field
from types import CodeType
from typing import Never, Protocol

from distlock.backends.base import Backend, LockRequest
from distlock.engine.sans_io import Call, Commands, Parker, run
from distlock.errors import BackendUnavailable, ConfigurationError, LockLost, NotHeld
from distlock.grants.grant import Fence, Grant
from distlock.owner import Owner
from distlock.terms import Mode, Terms

#: A turn is what one process does with a hold before the next process gets the lock. It has at most `SPAN`
#: grants, which begin within `TURN` seconds. These are the bounds of lock cohorting:
#: https://doi.org/10.1145/2145816.2145848
SPAN = 64
TURN = 0.05
#: For this process a lease ends after LEASE_SHARE of its ttl, minus LEASE_LESS seconds. On the server it ends
#: later: clocks drift, and a holder has to learn of the end before the next holder begins.
LEASE_SHARE, LEASE_LESS = 0.98, 0.002


@dataclass(slots=True, eq=False)
class Waiter:
    """A caller that waits for a grant, or has one."""

    parker: Parker
    #: When the caller came.
    came: float
    #: When the caller's time is over.
    deadline: float
    #: Whether the caller does not wait for the lock, but leaves the queue when the lock service answers.
    asks_once: bool
    options: Terms
    #: Whether the caller sends the lock request for all waiters of the queue.
    leads: bool = False
    #: Whether the caller has slept, because the lock was not simply free.
    waited: bool = False
    grant: NameGrant | None = None
    #: The text of the error with which all waiters of the queue fail; None: they don't fail.
    failure: str | None = None
    #: The latest call of the caller to the lock service.
    call: Call | None = None
    #: Whether another caller's thread or the maintenance thread has refused the waiter: it asks once, or its
    #: event loop stood still past its deadline (see `StalledWaiters`).
    removed_by_others: bool = False

    @property
    def owner(self) -> Owner:
        return self.parker.owner

    @property
    def is_calling(self) -> bool:
        """Whether the lock service may still act on the latest call."""
        return self.call is not None and not self.call.is_over()


class Queue(Protocol):
    """What grants and `HoldCalls` need of a wait queue: see `distlock.engine.wait_queue.WaitQueue`."""

    name: str
    waiters: deque[Waiter]
    #: Seconds of a turn; None: `TURN`.
    turn: float | None

    def end_grant(self, grant: NameGrant) -> bool: ...
    def release_ended(self, hold: Hold, ours: bool | None) -> None: ...
    def lose(self, hold: Hold, why: str, cancel: bool) -> list[NameGrant]: ...
    def end_hung_readers(self, hold: Hold) -> list[NameGrant]: ...
    def is_writer(self, grant: NameGrant) -> bool: ...
    def downgrade(self, hold: Hold, request: LockRequest, grant: NameGrant) -> None: ...
    def is_followed(self, grant: NameGrant) -> bool: ...
    def share(self, grant: NameGrant, batch: object) -> bool: ...
    def drop(self, grant: NameGrant) -> None: ...
    def mend(self) -> None: ...


class HoldCallsProtocol(Protocol):
    """What a grant uses to ask the lock service: see `distlock.engine.hold_calls.HoldCalls`."""

    backend: Backend
    #: Returns the time of the clock of leases, in seconds.
    now: Callable[[], float]

    def release(self, grant: NameGrant, until: float = math.inf) -> Commands[None]: ...
    def abandon(self, grant: NameGrant, error: BaseException) -> None: ...
    def acknowledge(self, hold: Hold) -> Commands[None]: ...
    def raise_fence(self, grant: NameGrant, number: int) -> Commands[bool]: ...
    def downgrade(self, grant: NameGrant) -> Commands[None]: ...
    def is_followed(self, grant: NameGrant) -> bool: ...
    def share(self, grant: NameGrant, batch: object) -> bool: ...
    def why_ended(self, hold: Hold) -> str: ...
    def note(self, grant: NameGrant) -> None: ...
    def erase(self, grant: NameGrant) -> None: ...
    def keep_if_killed(self, grant: NameGrant) -> None: ...


@dataclass(slots=True, eq=False)
class Hold:
    """A hold, which the lock service granted for *ttl* seconds to a request that was sent at *sent*."""

    queue: Queue
    request: LockRequest
    #: The first number of its block of fence numbers.
    first_number: int
    sent: InitVar[float]
    ttl: InitVar[float]
    #: How many seconds its present caller may have it; ``inf`` for readers, which have limits of their own.
    max_hold: float
    #: How many numbers of the block are given out.
    used: int = 0
    #: Whether its block of numbers was exchanged for a higher one.
    fence_raised: bool = False
    #: Why the hold was ended as lost; None: it was not. `NameGrant.lost` also looks at the end of the lease.
    lost: str | None = None
    #: The grant that is out, of a writer or of permits. Whenever the engine's mutex is free there is one, or
    #: a reader, unless the thread that owned the mutex was interrupted.
    grant: NameGrant | None = None
    #: The waiter that has `grant`.
    waiter: Waiter | None = None
    #: Whether a release was requested, so that no other caller in this process gets the hold.
    release_requested: bool = False
    #: The grants of readers that are out, and their waiters. Beside a writer only the writer itself reads.
    readers: dict[NameGrant, Waiter] = field(init=False)
    #: When the first reader exceeds its max_hold.
    first_reader_ends: float = math.inf
    #: Whether other processes may wait for the key, so that no reader may join any more.
    others_wait: bool = False
    #: `request` in the mode `READ`, if a downgrade was sent and its outcome is unknown.
    downgrade_request: LockRequest | None = None
    #: Whether its release is under way.
    releasing: bool = False
    #: When the renewer checks it next.
    due: float = math.inf
    #: False: a push handed it off, and the lock service has not confirmed it yet.
    acknowledged: bool = True
    #: Since when its present caller has it.
    since: float = field(init=False)
    turn_ends: float = field(init=False)
    #: When the latest call was sent by which the lock service has granted or renewed it.
    renewed: float = field(init=False)
    #: Seconds after `renewed` at which the renewer renews or acknowledges it.
    period: float = field(init=False)
    #: When its lease ends, unless it is renewed; ``inf`` without a lease.
    lease_ends: float = field(init=False)

    def __post_init__(self, sent: float, ttl: float) -> None:
        self.readers = _NO_READERS
        self.since = self.renewed = sent
        self.turn_ends = sent + (TURN if self.queue.turn is None else self.queue.turn)
        self.period = self.request.ttl / 3
        self.lease_ends = sent + LEASE_SHARE * ttl - LEASE_LESS

    @property
    def grants(self) -> list[NameGrant]:
        """The grants that are out, the oldest first."""
        # Copying is one step: some callers do not own the mutex.
        return [*self.readers] if self.grant is None else [self.grant, *self.readers]

    @property
    def owners(self) -> list[Owner]:
        """The threads and tasks that have a grant of it."""
        readers = [waiter.owner for waiter in [*self.readers.values()]]
        return readers if self.waiter is None else [self.waiter.owner, *readers]

    @property
    def is_used(self) -> bool:
        """Whether a grant of it is out, and not released."""
        return bool(self.readers) or (self.grant is not None and not self.grant.released)

    @property
    def max_hold_ends(self) -> float:
        """When its present caller exceeds max_hold; ``inf`` for readers, which have limits of their own."""
        grant = self.grant
        if self.readers and (grant is None or grant.released):
            return math.inf
        return self.since + self.max_hold

    def is_out(self, grant: NameGrant) -> bool:
        """Return whether *grant* still uses this hold, and no later grant has taken its place."""
        return self.grant is grant or grant in self.readers

    def waiter_of(self, grant: NameGrant) -> Waiter | None:
        """Return the waiter that has *grant*; None if *grant* is not out."""
        return self.waiter if self.grant is grant else self.readers.get(grant)

    def add_reader(self, grant: NameGrant, waiter: Waiter) -> None:
        if self.readers is _NO_READERS:
            self.readers = {}
        self.readers[grant] = waiter
        self.first_reader_ends = min(self.first_reader_ends, grant._max_hold_ends)

    def remove_reader(self, grant: NameGrant) -> bool:
        """Remove the reader that has *grant*. Return False if it was removed before."""
        return self.readers.pop(grant, None) is not None

    def remove_hung_readers(self, now: float) -> list[NameGrant]:
        """Remove the readers that exceed their max_hold. Return their grants."""
        hung = [grant for grant in self.readers if grant._max_hold_ends <= now]
        for grant in hung:
            self.remove_reader(grant)
        self.first_reader_ends = min((grant._max_hold_ends for grant in self.readers), default=math.inf)
        return hung

    def latest_fence(self, epoch: int) -> Fence:
        """Return the fence of the latest grant. All readers of the hold share it."""
        return Fence(epoch, self.first_number + max(0, self.used - 1))

    def raise_fence(self, first_number: int) -> None:
        """Give the next grants numbers from *first_number* on."""
        self.fence_raised = True
        self.first_number = first_number
        self.used = 0

    def mark_handed_off(self, sent: float, window: float) -> None:
        """Note that a push has handed it off, and that the lock service has not confirmed it yet.

        Until it is confirmed, it lasts for *window* seconds after *sent*.
        """
        self.acknowledged = False
        self.lease_ends = sent + LEASE_SHARE * window - LEASE_LESS
        self.period = window / 8

    def renew(self, sent: float, ttl: float) -> None:
        """Note that the lock service has confirmed it, in its reply to a call that was sent at *sent*."""
        self.acknowledged = True
        self.renewed = sent
        self.period = self.request.ttl / 3
        self.lease_ends = sent + LEASE_SHARE * ttl - LEASE_LESS

    def may_hand_off(self, now: float) -> bool:
        """Return whether the next caller here may have it.

        Among other things, its turn must not be over, and a third of its ttl has to be left.
        """
        return (
            not self.lost
            and not self.release_requested
            and self.acknowledged
            and self.downgrade_request is None
            and self.used < self.request.span
            and now < self.turn_ends
            and now < self.lease_ends - self.request.ttl / 3
        )


class NameGrant(Grant):
    """The grant of one name."""

    __slots__ = (
        "_fence",
        "_hold",
        "_hold_calls",
        "_lost_at_end",
        "_max_hold_ends",
        "_options",
        "mode",
        "name",
        "since",
    )

    mode: Mode
    since: float

    def __init__(
        self, hold_calls: HoldCallsProtocol, hold: Hold, fence: Fence, since: float, options: Terms
    ) -> None:
        self._hold_calls = hold_calls
        self._hold = hold
        self._fence = fence
        #: Whether it was lost when it was released; None: it is not released. The hold can't tell: later
        #: grants may use it.
        self._lost_at_end: bool | None = None
        self._options = options
        self.mode = options.mode
        #: When a reader exceeds its max_hold; ``inf`` for a writer: see `Hold.max_hold_ends`.
        self._max_hold_ends = math.inf
        self.name = hold.queue.name
        self.since = since

    def __repr__(self) -> str:
        return f"<Grant {self.name!r} fence={self._fence.epoch}:{self._fence.number} {self._state()}>"

    def _state(self) -> str:
        return "released" if self.released else f"lost: {self.why_lost}" if self.lost else "held"

    def shown(self) -> str:
        """Return the text for it in errors and in the log."""
        return f"lock {self.name!r} (fence {self._fence.epoch}:{self._fence.number})"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def where(self) -> str | CodeType | None:
        """The user's code that asked for the lock: see `distlock.terms.Terms`."""
        return self._options.where

    @property
    def fence(self) -> Fence:
        return self._fence

    @property
    def fences(self) -> Mapping[str, Fence]:
        return {self.name: self._fence}

    @property
    def namespace(self) -> str:
        return self._hold.request.key.partition(":")[0]

    @property
    def holder_ids(self) -> Mapping[str, str]:
        # This is a digest, because any code that knows the token can release the lock.
        return {self.name: hashlib.blake2b(self._hold.request.token.encode(), digest_size=16).hexdigest()}

    @property
    def unnumbered_by(self) -> str | None:
        backend = self._hold_calls.backend
        return None if backend.capabilities.fence else type(backend).__qualname__

    @property
    def released(self) -> bool:
        return self._lost_at_end is not None

    @property
    def lost(self) -> bool:
        if self._lost_at_end is not None:
            return self._lost_at_end
        hold = self._hold
        now = self._hold_calls.now()
        return hold.lost is not None or now >= hold.lease_ends or now >= self._max_hold_ends

    @property
    def why_lost(self) -> str | None:
        if not self.lost:
            return None
        if self._hold.lost is None and self._hold_calls.now() >= self._max_hold_ends:
            return f"it was held longer than max_hold={self._options.max_hold:g} seconds"
        return self._hold.lost or self._hold_calls.why_ended(self._hold)

    @property
    def release_requested(self) -> bool:
        return self._hold.release_requested

    def end(self) -> bool:
        """Mark it as released. Return False if it was released before."""
        if self._options.fenced:
            self._hold_calls.erase(self)
        if self._lost_at_end is not None:
            return False
        hold = self._hold
        now = self._hold_calls.now()
        self._lost_at_end = hold.lost is not None or now >= hold.lease_ends or now >= self._max_hold_ends
        return True

    def end_lost(self, why: str) -> None:
        """Mark it as lost, because the lock service did not know its hold any more at the release."""
        self._hold.lost = why
        self._lost_at_end = True

    def remaining(self) -> float:
        if self.released or self._hold.lost:
            return 0.0
        return max(0.0, min(self._hold.lease_ends, self._max_hold_ends) - self._hold_calls.now())

    def check(self) -> None:
        if self._lost_at_end is not None:
            raise NotHeld(f"The lock {self.name!r} was released before it was checked.")
        if not self._hold.acknowledged:
            try:
                run(self._hold_calls.acknowledge(self._hold))
            except BackendUnavailable as error:
                raise LockLost(
                    f"The lock {self.name!r} was handed off, and could not be confirmed: {error} Undo what "
                    "was done under it, and retry."
                ) from error
        if (why := self.why_lost) is not None:
            raise LockLost(f"The lock {self.name!r} was lost: {why}. Undo what was done under it, and retry.")

    def raise_fence(self, name: str, number: int) -> bool:
        return run(self._hold_calls.raise_fence(self, number))

    def _keep_if_killed(self) -> None:
        self._hold_calls.keep_if_killed(self)

    def _is_followed(self) -> bool:
        return self._hold_calls.is_followed(self)

    def _take_along(self, batch: object) -> bool:
        return self._hold_calls.share(self, batch)

    def _downgrade(self) -> Commands[None]:
        return self._hold_calls.downgrade(self)

    def _release(self, until: float = math.inf) -> Commands[None]:
        return self._hold_calls.release(self, until)

    def _abandon(self, error: BaseException) -> None:
        self._hold_calls.abandon(self, error)


class SharedGrant(NameGrant):
    """The grant of a member of a batch. It shares the hold of the batch's first grant, which releases it."""

    __slots__ = ()

    def _take_along(self, batch: object) -> bool:
        return False

    def raise_fence(self, name: str, number: int) -> bool:
        return False

    def _release(self, until: float = math.inf) -> Commands[None]:
        self.end()
        yield from ()

    def _abandon(self, error: BaseException) -> None:
        self.end()


class PermitGrant(NameGrant):
    """The grant of a semaphore's permits. It has no fence, because several holders work at once."""

    __slots__ = ()

    def __repr__(self) -> str:
        of = f"{self._options.permits} of {self._options.limit}"
        return f"<Grant {self.name!r} permits={of} {self._state()}>"

    @property
    def fence(self) -> Fence:
        self._refuse()

    @property
    def fences(self) -> Mapping[str, Fence]:
        self._refuse()

    @property
    def holder_ids(self) -> Mapping[str, str]:
        self._refuse()

    def shown(self) -> str:
        return f"semaphore {self.name!r}"

    def _refuse(self) -> Never:
        raise ConfigurationError(
            f"The semaphore {self.name!r} has no fence, for several may be inside at once: take a lock where "
            "a transaction has to pass one."
        )


#: The readers of all holds without readers. It is never changed.
_NO_READERS: dict[NameGrant, Waiter] = {}
