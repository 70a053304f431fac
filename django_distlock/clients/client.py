"""The client ``locks["alias"]``, whose locks have to be acquired before a transaction, not inside one.

A transaction that begins under a lock is committed before the release, or rolled back. In async code that is
so in requests of Django's ASGI handler only. If the lock is a row of the database, the ``with`` block is the
transaction. `Client` reports to the debug toolbar, as guards do. Without the toolbar that costs one look at a
context variable.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.conf import settings
from django.core import mail

from distlock.engine.sans_io import Commands, NewParker, Parker, TaskParker
from distlock.errors import ConfigurationError, LockError
from distlock.grants.grant import Fence, Grant, GrantWrapper
from distlock.listening import Listened, Listener
from distlock.locks.client import Locks
from distlock.locks.lock import Lock, Semaphore
from distlock.locks.namespace import Acquirer, AcquirerWrapper, Acquisition, AtEnd, Namespace
from distlock.locks.rlock import RLock
from distlock.owner import Owner, current_owner, in_event_loop
from distlock.terms import Terms
from distlock.web.nested_deadlocks import block_waiting
from distlock.web.settings.aliases import AliasSettings
from distlock.web.settings.clients import make_client
from distlock.web.settings.database import RowAcquirer, RowLocks
from django_distlock.clients.idle_connections import RecordingAcquirer, wait_for_us, when_idle
from django_distlock.guarding import open_transactions
from django_distlock.guarding.fence import fenced, rows_connection
from django_distlock.private_of_others import has_asgi_thread, request_threads
from django_distlock.signals import fence_lifted, lock_lost, lock_release_requested

_REMEDY = (
    "Take the lock first: @distributed_lock(…) on the view, or 'with locks.lock(…):' around "
    "transaction.atomic(), which under ATOMIC_REQUESTS needs @transaction.non_atomic_requests on the view. "
    "Where the lock has nothing to do with the database, write locks.lock(…, in_transaction=True)."
)


class Client(Locks):
    """`distlock.Locks` whose locks can't be acquired inside an open transaction.

    A lock acquired there would be released before COMMIT, and the next holder would read old data. A lock
    that has nothing to do with the database may be acquired there: ``locks.lock("printer",
    in_transaction=True)``. The transactions of `TestCase` don't count.
    """

    def __init__(self, guards: Locks) -> None:
        """*guards*: the client of the same alias that guards use."""
        namespace = guards.namespace
        super().__init__(
            BlockAcquirer(_Watched(guards.acquirer), _REMEDY), guards.timeout, roll_back_left(namespace)
        )
        self._anywhere = Locks(_Watched(RecordingAcquirer(namespace, gives_back=False)), guards.timeout)

    def lock(self, *names: str, in_transaction: bool = False, **options: Any) -> Lock:
        """Return a lock: see `distlock.Locks.lock`.

        *in_transaction*: whether it may be acquired inside an open transaction.
        """
        return self._anywhere.lock(*names, **options) if in_transaction else super().lock(*names, **options)

    def rlock(self, *names: str, in_transaction: bool = False, **options: Any) -> RLock:
        """Return a re-entrant lock: see `distlock.Locks.rlock`.

        *in_transaction*: whether it may be acquired inside an open transaction.
        """
        return self._anywhere.rlock(*names, **options) if in_transaction else super().rlock(*names, **options)

    def semaphore(self, name: str, **options: Any) -> Semaphore:
        """Return a semaphore: see `distlock.Locks.semaphore`.

        It may be acquired inside an open transaction, because it does not keep transactions in order.
        """
        return self._anywhere.semaphore(name, **options)


def make(of_alias: AliasSettings) -> Locks:
    """Return the client of *of_alias* for guards. Does not connect.

    Raises `ConfigurationError` for settings that can't work.
    """
    # Tests run without DEBUG as well; Django's test runner gives them an outbox.
    if not settings.DEBUG and not hasattr(mail, "outbox"):
        of_alias.warn_if_alone()

    def lost(grant: Grant, why: str) -> None:
        lock_lost.send_robust(Client, alias=of_alias.alias, names=grant.names, grant=grant, why=why)

    def lifted(grant: Grant, was: Fence) -> None:
        fence_lifted.send_robust(Client, alias=of_alias.alias, names=grant.names, grant=grant, was=was)

    def wanted(grant: Grant) -> None:
        lock_release_requested.send_robust(Client, alias=of_alias.alias, names=grant.names, grant=grant)

    client = make_client(of_alias, lost, lifted, lambda: rows_connection(of_alias.fence), wanted)
    return Locks(RecordingAcquirer(client.acquirer), client.timeout)


def make_standby(of_alias: AliasSettings) -> Locks:
    """Return the client that locks rows of the database while the lock service of *of_alias* is down."""
    return Locks(RecordingAcquirer(RowAcquirer(of_alias)), of_alias.timeout)


#: Makes the listener of one acquisition in a namespace; None: the running request is not observed.
listener_maker: ContextVar[Callable[[Namespace], Listener] | None] = ContextVar(
    "distlock_listener_maker", default=None
)


class _Watched(AcquirerWrapper):
    """An acquirer that does what *inner* does, and reports to the listener that `listener_maker` makes."""

    def acquire(self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms) -> Acquisition:
        watch = listener_maker.get()
        inner = self._inner if watch is None else Listened(self._inner, watch(self.namespace))
        return inner.acquire(names, parker, seconds, terms)


class BlockAcquirer(AcquirerWrapper):
    """An acquirer of *inner*'s locks that raises `ConfigurationError` inside a transaction.

    *remedy*: the remedy that the error names.
    """

    def __init__(self, inner: Acquirer, remedy: str) -> None:
        super().__init__(inner)
        self._remedy = remedy

    def acquire(self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms) -> Acquisition:
        open_transactions.refuse_open(names, self._remedy)
        with block_waiting(self.namespace, names, seconds, terms.mode) as most:
            grant = yield from self._inner.acquire(names, parker, most, terms)
        return None if grant is None else EnclosingGrant(grant, current_owner(), self.namespace)


def roll_back_left(namespace: Namespace) -> AtEnd:
    """Return a function that rolls back the transactions left open at the end of a ``with`` block.

    Their COMMIT would come after the release. The function returns the error to raise; None: none was open.
    """

    def at_end(names: tuple[str, ...]) -> Commands[LockError | None]:
        left = yield from _in_request_thread(open_transactions.roll_back, namespace, names)
        try:
            open_transactions.refuse_left(names, left)
        except ConfigurationError as error:
            return error
        return None

    return at_end


class EnclosingGrant(GrantWrapper):
    """A grant that its owner must not release inside a transaction that began under it."""

    __slots__ = ("_namespace", "_owner")

    def __init__(self, grant: Grant, owner: Owner, namespace: Namespace) -> None:
        super().__init__(grant)
        self._owner = owner
        self._namespace = namespace

    @property
    def parts(self) -> Mapping[str, Grant]:
        parts = self._grant.parts
        if len(parts) == 1:
            return dict.fromkeys(parts, self)
        return {name: EnclosingGrant(part, self._owner, self._namespace) for name, part in parts.items()}

    def _release(self, until: float = math.inf) -> Commands[None]:
        early: str | None = None
        try:
            # Transactions of another thread or task did not begin under this grant, and a lost lock is not
            # released.
            if not self.released and not self.lost and self._owner == current_owner():
                early = yield from _in_request_thread(
                    open_transactions.mark_for_rollback, self._namespace, self.names
                )
        finally:
            yield from self._grant._release(until)
        if isinstance(sys.exc_info()[1], Exception | None):
            open_transactions.refuse_early(self.names, early)


def _in_request_thread(
    look: Callable[[], str | None], namespace: Namespace, names: Sequence[str]
) -> Commands[str | None]:
    """Call *look* in the thread that does the database work of the running code, and return its result.

    Return None without the call if a task has no such thread for itself, or if the thread's work waits for a
    lock that this code holds, such as *names*.
    """
    parker = (yield NewParker()) if in_event_loop() else None
    if not isinstance(parker, TaskParker):
        return look()
    if not has_asgi_thread():
        return None  # Outside of ASGI requests, tasks may share one thread: leave their transactions alone.
    # Watch all threads, because the request's own thread may start only now.
    return (yield from when_idle(look, parker, lambda: wait_for_us(request_threads(), namespace, names)))


_ROW_REMEDY = (
    "Write 'with locks.lock(…):' outside of every transaction: its block is one, committed at its end. "
    "For a view write @distributed_lock(…) on the view."
)


class _OutsideAcquirer(AcquirerWrapper):
    """An acquirer of *inner*'s locks that raises inside a transaction: the ``with`` block begins its own."""

    def acquire(self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms) -> Acquisition:
        open_transactions.refuse_open(names, _ROW_REMEDY)
        return (yield from self._inner.acquire(names, parker, seconds, terms))


class RowClient(RowLocks):
    """The client ``locks["alias"]`` if the lock is a row of the database *using*."""

    def __init__(self, guards: Locks, using: str) -> None:
        """*guards*: the client of the same alias that guards use."""
        no_rlock = f"A lock that is a row can't be an rlock: it is one transaction. {_ROW_REMEDY}"
        at_end = roll_back_left(guards.namespace)
        super().__init__(
            _OutsideAcquirer(guards.acquirer), guards.timeout, self._transaction, no_rlock, at_end
        )
        self._using = using

    def lock(self, *names: str, in_transaction: bool = False, **options: Any) -> Lock:
        """Return a lock whose ``with`` block is a transaction, which an exception rolls back.

        Raises `ConfigurationError` for *in_transaction*.
        """
        if in_transaction:
            raise ConfigurationError(f"in_transaction=True, and the lock is a row. {_ROW_REMEDY}")
        return super().lock(*names, **options)

    @contextmanager
    def _transaction(self, grant: Grant, left: Callable[[], float]) -> Iterator[None]:
        with fenced(grant, self._using, left):
            yield
            open_transactions.refuse_failed([self._using])
            grant.check()
