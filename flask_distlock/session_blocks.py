"""The client ``locks["alias"]``, whose ``with`` blocks handle ``db.session`` as a guard does.

If the lock is a row of the database, the block is one transaction.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from flask import current_app

from distlock.engine.sans_io import Commands, Parker
from distlock.errors import ConfigurationError
from distlock.fence.statements import Connection, refuse_shared_rows
from distlock.grants.current import CurrentGrant, KeptGuardLock
from distlock.grants.grant import Grant, GrantWrapper
from distlock.grants.joint import MultiGrant
from distlock.locks.client import Locks
from distlock.locks.namespace import Acquirer, AcquirerWrapper, Acquisition, Namespace
from distlock.owner import current_owner
from distlock.terms import PERMIT, Terms
from distlock.web.guard import kept_for, refuse_kept, refuse_upgrade
from distlock.web.nested_deadlocks import block_waiting
from distlock.web.settings.database import RowLocks
from flask_distlock.binds import engine_of, shown
from flask_distlock.guarding.app_state import GuardTransactions, State, inside_guard
from flask_distlock.guarding.kept_locks import served_request

#: What messages call a ``with`` block of such a client.
BLOCK = "The block of locks.lock(…)"


class SessionAcquirer(AcquirerWrapper):
    """The acquirer of locks that are no rows. It first ends the open transaction of ``db.session``.

    Raises `ConfigurationError` if the transaction must not end: see `flask_distlock.sql.sessions`. If the
    request keeps the names locked already, their lock is entered instead.
    """

    def __init__(self, inner: Acquirer, state: State) -> None:
        super().__init__(inner)
        self._state = state

    def acquire(self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms) -> Acquisition:
        if terms.mode == PERMIT:
            # A semaphore does not order transactions, so the session stays as it is.
            return (yield from self._inner.acquire(names, parker, seconds, terms))
        if (again := kept_for(self.namespace, names)) is not None and again.kept is not None:
            refuse_upgrade(again.grant, names, terms.mode)
            again.kept.__enter__()
            return BlockGrant(_of_names(again.grant, names), EnteredBlock(again.kept, {*names}))
        transactions = self._state.transactions(BLOCK, False, served_request())
        transactions.refuse_open(names, nested=inside_guard())
        refuse_kept(self.namespace, names)
        with block_waiting(self.namespace, names, seconds, terms.mode) as most:
            grant = yield from self._inner.acquire(names, parker, most, terms)
        return None if grant is None else BlockGrant(grant, SessionBlock(self.namespace, self._state))


def _of_names(grant: Grant, names: tuple[str, ...]) -> Grant:
    """Return the part of *grant* for *names*."""
    if len(names) == len(grant.names):
        return grant
    parts = [grant.parts[name] for name in names]
    return parts[0] if len(parts) == 1 else MultiGrant(parts)


class BlockGrant(GrantWrapper):
    """The grant of a ``with`` block. It passes everything on to *grant*, but *block* ends it.

    *whole*: for the part of one name, the grant of all names of the block. If *whole* has ended, so has this.
    """

    __slots__ = ("_block", "_ended", "_whole")

    # Two blocks may share one kept lock. Each block reports the loss of its own grant, so the grants differ.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, grant: Grant, block: SessionBlock | EnteredBlock, whole: Self | None = None) -> None:
        super().__init__(grant)
        self._block = block
        self._whole = whole
        self._ended = False

    @property
    def released(self) -> bool:
        return self._over() or self._grant.released

    @property
    def parts(self) -> Mapping[str, Grant]:
        parts = self._grant.parts
        if len(parts) == 1:
            return dict.fromkeys(parts, self)
        return {name: type(self)(part, self._block, self) for name, part in parts.items()}

    def remaining(self) -> float:
        return 0.0 if self._over() else self._grant.remaining()

    def _over(self) -> bool:
        return self._ended or self._block.over or (self._whole is not None and self._whole._ended)

    def _release(self, until: float = math.inf) -> Commands[None]:
        if not self._over():
            self._ended = True
            yield from self._block.end(self._grant)

    def _abandon(self, error: BaseException) -> None:
        if not self._over():
            self._ended = True
            self._block.abandon(self._grant, error)


@dataclass(eq=False)
class SessionBlock:
    """A block that has acquired its lock.

    If the request may still commit the session's transaction after the block, the lock is released when that
    transaction ends; else at the end of the block.
    """

    namespace: Namespace
    state: State
    #: Whether the block has ended. Always False, because each `BlockGrant` notes its own end.
    over: ClassVar[bool] = False

    def end(self, grant: Grant) -> Commands[None]:
        later = None
        try:
            held = CurrentGrant(self.namespace, grant, current_owner())
            transactions = self.state.transactions(BLOCK, False, served_request())
            later = transactions.leave(held, failed=sys.exc_info()[0] is not None)
        finally:
            if later is None:
                yield from grant._release()
        if later is not None:
            later.callback(grant.release)

    def abandon(self, grant: Grant, error: BaseException) -> None:
        grant._abandon(error)


@dataclass(eq=False)
class EnteredBlock:
    """A block whose lock the request already keeps."""

    kept: KeptGuardLock
    #: The names whose grants have not ended.
    inside: set[str]
    over: bool = False

    def end(self, grant: Grant) -> Commands[None]:
        self.abandon(grant)
        yield from ()

    def abandon(self, grant: Grant, error: BaseException | None = None) -> None:
        self.inside.difference_update(grant.names)
        if not self.inside:
            self.over = True
            self.kept.__exit__()


_NO_RLOCK = (
    "A lock that is a row can't be an rlock, because it is one transaction: write "
    "'with locks.lock(…):', with db.session.commit() at the end of its block."
)


class _OutsideSession(AcquirerWrapper):
    """The acquirer of locks that are rows. It first ends the open transaction of ``db.session``.

    Raises `ConfigurationError` if the transaction must not end: see `flask_distlock.sql.sessions`.
    """

    def __init__(self, inner: Acquirer, transactions: Callable[[], GuardTransactions]) -> None:
        super().__init__(inner)
        self._transactions = transactions

    def acquire(self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms) -> Acquisition:
        self._transactions().refuse_open(names, nested=inside_guard())
        with block_waiting(self.namespace, names, seconds, terms.mode) as most:
            return (yield from self._inner.acquire(names, parker, most, terms))


def refuse_unshared(bind: str | None, wish: str) -> None:
    """Raise `ConfigurationError` if the rows of *bind* can't be locks that readers share.

    *wish*: what the user wrote, for the message.
    """
    engine = engine_of(bind)
    try:
        # A bind without an engine is refused by the first call of a guard.
        if engine is not None:
            refuse_shared_rows(engine.dialect.name)
    except ConfigurationError as error:
        raise ConfigurationError(f"{wish}: {error}") from None


@contextmanager
def inspection_connection(bind: str | None) -> Iterator[Connection]:
    """Yield a new connection to the database of *bind*, to inspect its locked rows.

    Raises `ConfigurationError` if the app has no such database.
    """
    from flask_distlock.sql.fenced_sessions import FenceConnection

    engine = engine_of(bind)
    if engine is None:
        db: Any = current_app.extensions.get("sqlalchemy")
        raise ConfigurationError(
            f"The rows of the bind {bind!r} can't be looked at: the app has "
            f"{shown(db.engines) if db is not None else 'no db.session; write db.init_app(app)'}."
        )
    row = FenceConnection(engine)
    with engine.connect() as row.open:
        yield row


def row_client(guards: Locks, transactions: Callable[[], GuardTransactions], bind: str | None) -> RowLocks:
    """Return the client ``locks["alias"]`` of an alias whose locks are rows of *bind*.

    The ``with`` block of a lock is a transaction of ``db.session``. The code in the block has to commit it:
    uncommitted changes are rolled back with an error.

    *guards*: the client of the same alias that guards use. *transactions*: makes those of one block.
    """

    def begin(grant: Grant, left: Callable[[], float]) -> AbstractContextManager[object]:
        return transactions().begin(grant, bind, left)

    return RowLocks(_OutsideSession(guards.acquirer, transactions), guards.timeout, begin, _NO_RLOCK)
