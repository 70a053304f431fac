"""``with locks.lock(…)`` in Django: no transaction that begins in the block outlives the lock.

If the lock is a row of the database, the block is the transaction.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from asgiref.sync import sync_to_async

from distlock.engine.commands import Commands, NewParker, Park, Parker
from distlock.engine.drivers import TaskParker
from distlock.errors import ConfigurationError, LockError
from distlock.grants.grant import Grant, GrantWrapper
from distlock.locks.client import Locks
from distlock.locks.lock import Lock
from distlock.locks.namespace import Acquirer, AtEnd, Namespace
from distlock.owner import Owner, current_owner, in_event_loop
from distlock.terms import Terms
from distlock.web.nesting import block_waiting
from distlock.web.settings.rows import RowLocks
from django_distlock.clients.pooled import wait_for_us, watched
from django_distlock.guarding.fence import fenced
from django_distlock.guarding.open_transactions import (
    give_up,
    refuse_early,
    refuse_failed,
    refuse_left,
    refuse_open,
    roll_back,
)
from django_distlock.private_of_others import has_thread_of_its_own, request_threads


class BlockAcquirer:
    """Acquires locks of *inner*, but raises inside a transaction. *line*: the remedy that the error names."""

    def __init__(self, inner: Acquirer, line: str) -> None:
        self.namespace = inner.namespace
        self._inner = inner
        self._line = line

    def acquire(
        self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[Grant | None]:
        refuse_open(names, self._line)
        with block_waiting(self.namespace, names, seconds, terms.mode) as most:
            grant = yield from self._inner.acquire(names, parker, most, terms)
        return None if grant is None else EnclosingGrant(grant, current_owner(), self.namespace)


def roll_back_left(namespace: Namespace) -> AtEnd:
    """Return a function for the end of a ``with`` block, which rolls back any transaction left open.

    The COMMIT of such a transaction would come after the release.
    """

    def at_end(names: tuple[str, ...]) -> Commands[LockError | None]:
        left = yield from _where_it_runs(roll_back, namespace, names)
        try:
            refuse_left(names, left)
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

    def __eq__(self, other: object) -> bool:
        # Signals pass the lock service's grant, so that one has to be equal to this.
        return self._grant == (other._grant if isinstance(other, EnclosingGrant) else other)

    def __hash__(self) -> int:
        return hash(self._grant)

    @property
    def parts(self) -> Mapping[str, Grant]:
        parts = self._grant.parts
        if len(parts) == 1:
            return dict.fromkeys(parts, self)
        return {name: EnclosingGrant(part, self._owner, self._namespace) for name, part in parts.items()}

    def _release(self, until: float = math.inf) -> Commands[None]:
        early: str | None = None
        try:
            # Another thread has transactions of its own, and a lost lock is not released.
            if not self.released and not self.lost and self._owner == current_owner():
                early = yield from _where_it_runs(give_up, self._namespace, self.names)
        finally:
            yield from self._grant._release(until)
        if isinstance(sys.exc_info()[1], Exception | None):
            refuse_early(self.names, early)


def _where_it_runs(
    look: Callable[[], str | None], namespace: Namespace, names: Sequence[str]
) -> Commands[str | None]:
    """Call *look* in the thread that does the database work of the running code, which holds *names*."""
    if not in_event_loop():
        return look()
    parker = yield NewParker()
    if isinstance(parker, TaskParker):
        return (yield from _when_idle(look, parker, lambda: wait_for_us(request_threads(), namespace, names)))
    return look()


def _when_idle(
    look: Callable[[], str | None], parker: TaskParker, waits_for_us: Callable[[], bool]
) -> Commands[str | None]:
    """Wait until the thread of this request's `sync_to_async` is idle, and call *look* there.

    If the client disconnects, work in that thread goes on, and would be committed after the release. Don't
    wait for work that itself waits for this lock: neither would end.
    """
    if not has_thread_of_its_own():
        return None  # Not in a request: all tasks share one thread.
    idle = asyncio.ensure_future(sync_to_async(look)())
    idle.add_done_callback(lambda _: parker.wake())
    cancelled: asyncio.CancelledError | None = None
    # Watch all threads, because the request's own thread may start only now.
    with watched(parker):
        while not (idle.done() or waits_for_us()):
            try:
                yield Park(parker, math.inf)
            except asyncio.CancelledError as error:
                cancelled = error
    left = None if idle.cancel() else idle.result()
    if cancelled is not None:
        raise cancelled
    return left


_LINE = (
    "Write 'with locks.lock(…):' outside of every transaction: its block is one, committed at its end. "
    "For a view write @distributed_lock(…) on the view."
)


class _Outside:
    """Acquires locks of *inner*, but raises inside a transaction: the ``with`` block begins its own."""

    def __init__(self, inner: Acquirer) -> None:
        self.namespace = inner.namespace
        self._inner = inner

    def acquire(
        self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[Grant | None]:
        refuse_open(names, _LINE)
        return (yield from self._inner.acquire(names, parker, seconds, terms))


class RowClient(RowLocks):
    """The client ``locks["alias"]`` if the lock is a row of the database *using*."""

    def __init__(self, guards: Locks, using: str) -> None:
        """*guards*: the client of the same alias that guards use."""
        no_rlock = f"A lock that is a row can't be an rlock: it is one transaction. {_LINE}"
        at_end = roll_back_left(guards.namespace)
        super().__init__(_Outside(guards.acquirer), guards.timeout, self._transaction, no_rlock, at_end)
        self._using = using

    def lock(self, *names: str, in_transaction: bool = False, **options: Any) -> Lock:
        """Return a lock whose ``with`` block is a transaction, which an exception rolls back."""
        if in_transaction:
            raise ConfigurationError(f"in_transaction=True, and the lock is a row. {_LINE}")
        return super().lock(*names, **options)

    @contextmanager
    def _transaction(self, grant: Grant, left: Callable[[], float]) -> Iterator[None]:
        with fenced(grant, self._using, left):
            yield
            refuse_failed([self._using])
            grant.check()
