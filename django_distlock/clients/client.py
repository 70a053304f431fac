"""The client ``locks["alias"]``, whose locks have to be acquired before a transaction, not inside one.

It reports to the debug toolbar, as guards do. Without the toolbar that costs one look at a context variable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from django.conf import settings
from django.core import mail

from distlock.clock import now
from distlock.engine.commands import Commands, Parker
from distlock.errors import LockError, LockTimeout
from distlock.grants.grant import Fence, Grant, GrantWrapper
from distlock.locks.client import Locks
from distlock.locks.lock import Lock, Semaphore
from distlock.locks.namespace import Acquirer, Namespace
from distlock.locks.rlock import RLock
from distlock.terms import Terms
from distlock.web.observer import Observer
from distlock.web.settings.aliases import AliasSettings
from distlock.web.settings.clients import make_client, warn_if_alone
from distlock.web.settings.rows import RowAcquirer
from django_distlock.clients.blocks import BlockAcquirer, roll_back_left
from django_distlock.clients.pooled import Waiting
from django_distlock.guarding.fence import looking
from django_distlock.signals import fence_lifted, lock_lost, lock_release_requested

_LINE = (
    "Take the lock first: @distributed_lock(…) on the view, or 'with locks.lock(…):' around "
    "transaction.atomic(), which under ATOMIC_REQUESTS needs @transaction.non_atomic_requests on the view. "
    "Where the lock has nothing to do with the database, write locks.lock(…, in_transaction=True)."
)


class Client(Locks):
    """`distlock.Locks` whose locks can't be acquired inside an open transaction.

    Such a lock would be released before COMMIT, and the next server would read old data. A lock that has
    nothing to do with the database may be acquired there: ``locks.lock("printer", in_transaction=True)``. The
    transactions of `TestCase` don't count.
    """

    def __init__(self, guards: Locks) -> None:
        """*guards*: the client of the same alias that guards use."""
        namespace = guards.namespace
        super().__init__(
            BlockAcquirer(Observed(guards.acquirer), _LINE), guards.timeout, roll_back_left(namespace)
        )
        self._anywhere = Locks(Observed(Waiting(namespace, gives_back=False)), guards.timeout)

    def lock(self, *names: str, in_transaction: bool = False, **options: Any) -> Lock:
        """See `distlock.Locks.lock`. *in_transaction*: the lock may be acquired inside a transaction."""
        return self._anywhere.lock(*names, **options) if in_transaction else super().lock(*names, **options)

    def rlock(self, *names: str, in_transaction: bool = False, **options: Any) -> RLock:
        """See `distlock.Locks.rlock`. *in_transaction*: the lock may be acquired inside a transaction."""
        return self._anywhere.rlock(*names, **options) if in_transaction else super().rlock(*names, **options)

    def semaphore(self, name: str, **options: Any) -> Semaphore:
        """See `distlock.Locks.semaphore`. It may be acquired in transactions: it does not order them."""
        return self._anywhere.semaphore(name, **options)


def make(of_alias: AliasSettings) -> Locks:
    """Return the client of *of_alias* for guards. Does not connect. Raises on settings that can't work."""
    # Tests run without DEBUG as well; Django's test runner gives them an outbox.
    if not settings.DEBUG and not hasattr(mail, "outbox"):
        warn_if_alone(of_alias)

    def lost(grant: Grant, why: str) -> None:
        lock_lost.send_robust(Client, alias=of_alias.alias, names=grant.names, grant=grant, why=why)

    def lifted(grant: Grant, was: Fence) -> None:
        fence_lifted.send_robust(Client, alias=of_alias.alias, names=grant.names, grant=grant, was=was)

    def wanted(grant: Grant) -> None:
        lock_release_requested.send_robust(Client, alias=of_alias.alias, names=grant.names, grant=grant)

    client = make_client(of_alias, lost, lifted, lambda: looking(of_alias.fence), wanted)
    return Locks(Waiting(client.acquirer), client.timeout)


def make_standby(of_alias: AliasSettings) -> Locks:
    """Return the client that locks rows of the database while the lock service of *of_alias* is down."""
    return Locks(Waiting(RowAcquirer(of_alias)), of_alias.timeout)


#: Makes the observer of one acquisition; None: the running request is not observed.
watching: ContextVar[Callable[[Namespace, Terms], Observer] | None] = ContextVar(
    "distlock_watching", default=None
)


class Observed:
    """Acquires locks of *inner*, and reports to the observer that `watching` makes."""

    def __init__(self, inner: Acquirer) -> None:
        self.namespace = inner.namespace
        self._inner = inner

    def acquire(
        self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[Grant | None]:
        watch = watching.get()
        if watch is None:
            return self._inner.acquire(names, parker, seconds, terms)
        return self._observed(watch(self.namespace, terms), names, parker, seconds, terms)

    def _observed(
        self, observer: Observer, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[Grant | None]:
        asked = now()
        try:
            grant = yield from self._inner.acquire(names, parker, seconds, terms)
        except LockError as error:
            observer.refused(names, error, now() - asked)
            raise
        if grant is None:
            observer.refused(names, LockTimeout("It stayed taken."), now() - asked)
            return None
        observer.acquired(grant, now() - asked)
        return ObservedGrant(grant, observer)


class ObservedGrant(GrantWrapper):
    """A grant that tells an observer of its end."""

    __slots__ = ("_observer", "_since")

    def __init__(self, grant: Grant, observer: Observer) -> None:
        super().__init__(grant)
        self._observer: Observer | None = observer
        self._since = now()

    def __eq__(self, other: object) -> bool:
        # Signals pass the lock service's grant, so that one has to be equal to this.
        return self._grant == (other._grant if isinstance(other, ObservedGrant) else other)

    def __hash__(self) -> int:
        return hash(self._grant)

    @property
    def parts(self) -> Mapping[str, Grant]:
        parts = self._grant.parts
        return dict.fromkeys(parts, self) if len(parts) == 1 else parts

    def _release(self, until: float = math.inf) -> Commands[None]:
        try:
            yield from self._grant._release(until)
        finally:
            self._tell()

    def _abandon(self, error: BaseException) -> None:
        self._grant._abandon(error)
        self._tell()

    def _tell(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.released(self._grant, now() - self._since)
