"""``with locks.lock("product_1"):`` where the lock is a row of the database: the block is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from flask import current_app

from distlock.engine.commands import Commands, Parker
from distlock.errors import ConfigurationError
from distlock.fence.sharing import refuse_lines
from distlock.fence.statements import Connection
from distlock.grants.grant import Grant
from distlock.locks.client import Locks
from distlock.locks.namespace import Acquirer
from distlock.terms import Terms
from distlock.web.nesting import block_waiting
from distlock.web.settings.rows import RowLocks
from flask_distlock.binds import engine_of, shown
from flask_distlock.guarding.session import GuardTransactions, inside_guard

_NO_RLOCK = (
    "A lock that is a row can't be an rlock, because it is one transaction: write "
    "'with locks.lock(…):', with db.session.commit() at the end of its block."
)


class _OutsideSession:
    """*inner*, outside of every transaction of the session: the block begins its own."""

    def __init__(self, inner: Acquirer, transactions: GuardTransactions) -> None:
        self.namespace = inner.namespace
        self._inner = inner
        self._transactions = transactions

    def acquire(
        self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[Grant | None]:
        self._transactions.refuse_open(names, nested=inside_guard())
        with block_waiting(self.namespace, names, seconds, terms.mode) as most:
            return (yield from self._inner.acquire(names, parker, most, terms))


def refuse_unshared(bind: str | None, wish: str) -> None:
    """Raise `ConfigurationError` if the rows of *bind* can't be locks that readers share.

    *wish*: what the user wrote, for the message.
    """
    engine = _engine_of(bind)
    try:
        # A call without names is refused at the first call, in other words.
        if engine is not None:
            refuse_lines(engine.dialect.name)
    except ConfigurationError as error:
        raise ConfigurationError(f"{wish}: {error}") from None


def _engine_of(bind: str | None) -> Any:
    db: Any = current_app.extensions.get("sqlalchemy")
    return None if db is None or bind is None else engine_of(db.engines, bind)


@contextmanager
def looking(bind: str | None) -> Iterator[Connection]:
    """A connection to the database of *bind*, beside that of the session, to see its locked rows."""
    from flask_distlock.sql.fence_row import FenceConnection

    engine = _engine_of(bind)
    if engine is None:
        db: Any = current_app.extensions.get("sqlalchemy")
        raise ConfigurationError(
            f"The rows of the bind {bind!r} can't be looked at: the app has "
            f"{shown(db.engines) if db is not None else 'no db.session; write db.init_app(app)'}."
        )
    row = FenceConnection(engine)
    with engine.connect() as row.open:
        yield row


def row_client(guards: Locks, transactions: GuardTransactions, bind: str | None) -> RowLocks:
    """Return the client ``locks["alias"]`` for a lock that is a row of the bind *bind*.

    *guards*: the client of the same alias that guards use. The ``with`` block of a lock is a transaction of
    ``db.session``, and commits it by itself.
    """

    def begin(grant: Grant, left: Callable[[], float]) -> AbstractContextManager[object]:
        return transactions.begin(grant, bind, left)

    return RowLocks(_OutsideSession(guards.acquirer, transactions), guards.timeout, begin, _NO_RLOCK)
