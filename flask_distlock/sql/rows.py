"""``with locks.lock("product_1"):`` where the lock is a row of the database: the block is one transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Never

from distlock.engine.steps import Gate, Steps
from distlock.errors import ConfigurationError
from distlock.fence.issuing import RowGrant
from distlock.grant import Grant
from distlock.lock import Lock
from distlock.locks import Locks
from distlock.web.nesting import block_waiting
from distlock.web.rows import RowLock
from flask_distlock.guarding.session import GuardTransactions, inside_guard


class RowClient(Locks):
    """What ``locks["alias"]`` gives where the lock is a row of the bind *bind*."""

    def __init__(self, guards: Locks, transactions: GuardTransactions, bind: str | None) -> None:
        super().__init__(guards._engine, guards.prefix, guards.timeout)
        self.place = guards.place
        self._guards = guards
        self._transactions = transactions
        self._bind = bind

    def lock(self, *names: str, **options: Any) -> Lock:
        """A lock whose ``with`` block is a transaction of ``db.session``, and commits it by itself."""
        return RowLock(super().lock(*names, **options), self._begin)

    def rlock(self, *names: str, **options: Any) -> Never:
        raise ConfigurationError(
            "A lock that is a row can't be an rlock, because it is one transaction: write "
            "'with locks.lock(…):', with db.session.commit() at the end of its block."
        )

    def _acquire(self, names: tuple[str, ...], gate: Gate, seconds: float, ttl: float) -> Steps[Grant | None]:
        self._transactions.refuse_open(names, nested=inside_guard())
        with block_waiting(self, names, seconds) as most:
            return (yield from self._guards._acquire(names, gate, most, ttl))

    def _begin(self, grant: RowGrant, left: Callable[[], float]) -> AbstractContextManager[object]:
        return self._transactions.begin(grant, self._bind, left)
