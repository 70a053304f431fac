"""``with locks.lock("product_1"):`` where the lock is a row of the database: the block is the transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from distlock.engine.commands import Commands, Parker
from distlock.errors import ConfigurationError
from distlock.grants.grant import Grant
from distlock.locks.client import Locks
from distlock.locks.lock import Lock
from distlock.locks.namespace import Acquirer
from distlock.terms import Terms
from distlock.web.rows import RowLocks
from django_distlock.clients.blocks import roll_back_left
from django_distlock.guarding.fence import fenced
from django_distlock.guarding.leftovers import refuse_failed
from django_distlock.guarding.open_transactions import refuse_open

_LINE = (
    "Write 'with locks.lock(…):' outside of every transaction: its block is one, committed at its end. "
    "For a view write @distributed_lock(…) on the view."
)


class _Outside:
    """*inner*, outside of every transaction: the block begins its own."""

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
        """A lock whose ``with`` block is a transaction: committed at its end, rolled back on errors."""
        if in_transaction:
            raise ConfigurationError(f"in_transaction=True, and the lock is a row. {_LINE}")
        return super().lock(*names, **options)

    @contextmanager
    def _transaction(self, grant: Grant, left: Callable[[], float]) -> Iterator[None]:
        with fenced(grant, self._using, left):
            yield
            refuse_failed([self._using])
            grant.check()
