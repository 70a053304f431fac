"""``with locks.lock("product_1"):`` where the lock is a row of the database: the block is the transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Never

from distlock.engine.steps import Gate, Steps
from distlock.errors import ConfigurationError
from distlock.fence.issuing import RowGrant
from distlock.grant import Grant
from distlock.lock import Lock
from distlock.web.rows import RowLock
from django_distlock.clients.client import Client
from django_distlock.guarding.fence import fenced
from django_distlock.guarding.leftovers import refuse_failed
from django_distlock.guarding.transactions import refuse_open

_LINE = (
    "Write 'with locks.lock(…):' outside of every transaction: its block is one, committed at its end. "
    "For a view write @distributed_lock(…) on the view."
)


class RowClient(Client):
    """What ``locks["alias"]`` gives where the lock is a row of the database *using*."""

    def __init__(self, guards: Client, using: str) -> None:
        super().__init__(guards._anywhere)
        self._using = using

    def lock(self, *names: str, in_transaction: bool = False, **options: Any) -> Lock:
        """A lock whose ``with`` block is a transaction: committed at its end, rolled back on errors."""
        if in_transaction:
            raise ConfigurationError(f"in_transaction=True, and the lock is a row. {_LINE}")
        return RowLock(super().lock(*names, **options), self._begin)

    def rlock(self, *names: str, in_transaction: bool = False, **options: Any) -> Never:
        raise ConfigurationError(f"A lock that is a row can't be an rlock: it is one transaction. {_LINE}")

    def _acquire(self, names: tuple[str, ...], gate: Gate, seconds: float, ttl: float) -> Steps[Grant | None]:
        refuse_open(names, _LINE)
        return (yield from self._wait(names, gate, seconds, ttl))

    @contextmanager
    def _begin(self, grant: RowGrant, left: Callable[[], float]) -> Iterator[None]:
        with fenced(grant, self._using, left):
            yield
            refuse_failed([self._using])
            grant.check()
