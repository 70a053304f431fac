"""The backend ``database``: the lock is the fence row, and there is no lock service.

The row is locked in the view's own transaction, so the lock is as long as the transaction, and there is
nothing that could be lost, renewed or forgotten. Writers of one process wait for each other here, first come
first served, and use no connection meanwhile: only the first of them waits for the row.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Never

from distlock.backends.base import Acquired, Capabilities, LockRequest, Sink, refuse_lacking
from distlock.backends.inspectable import KeyState, SeenProcess, StatusRow
from distlock.clock import now
from distlock.engine.engine import Engine
from distlock.engine.sans_io import Parker
from distlock.errors import BackendUnavailable, ConfigurationError, LockError
from distlock.fence import row_inspection
from distlock.fence.row_grant import RowGrant
from distlock.fence.statements import Connection
from distlock.fence.trouble import refuse_table, words_of
from distlock.grants.grant import Grant
from distlock.locks import self_deadlock as blocks
from distlock.locks.client import Locks
from distlock.locks.engine_namespace import EngineNamespace
from distlock.locks.lock import Lock, ReadLock
from distlock.locks.namespace import Acquirer, Acquisition, AtEnd
from distlock.owner import Owner, current_owner
from distlock.terms import READ, Kind, Terms
from distlock.web.settings.aliases import AliasSettings

#: Begins the transaction that locks the rows, and ends it with the block. The second argument returns how
#: many seconds are left.
Begin = Callable[[Grant, Callable[[], float]], AbstractContextManager[object]]

_WITH = "A row is locked as long as a transaction: write 'with locks.lock(…):'."

_LOOK = (
    "A look at rows takes the database connection of its thread. In async code write locks.inspect(…) or "
    "locks.list(…) in a function that sync_to_async() runs."
)


class _ThisProcess:
    """A backend that grants everything at once: between processes, the rows exclude.

    So writers of this process queue here, and only one of them at a time asks the database. A writer asks
    while readers still hold their rows; later callers wait behind it here.
    """

    capabilities = Capabilities(read=True)

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def open(self, sink: Sink) -> None: ...

    def request(self, ask: LockRequest, deadline: float = math.inf) -> Acquired:
        # No reader may join the grant of another: each has to ask the database, where writers may wait.
        return Acquired(next(self._numbers), followed=ask.mode == READ)

    def cancel(self, ask: LockRequest, deadline: float = math.inf) -> bool:
        return False

    def renew(self, asks: Sequence[LockRequest]) -> list[bool]:
        return [True] * len(asks)

    def release(self, ask: LockRequest, deadline: float = math.inf) -> bool:
        return True

    def raise_fence(self, ask: LockRequest, number: int) -> None: ...

    def locked(self, key: str) -> Never:
        raise ConfigurationError("Whether another server has locked a row is not known: try to lock it.")

    def close(self) -> None: ...

    def after_fork(self) -> None: ...


class RowAcquirer:
    """The acquirer of locks that are rows. A grant locks nothing before a transaction passes the fence."""

    def __init__(self, settings: AliasSettings, look: Look | None = None) -> None:
        """*look*: see `Look`; None: nobody can look at the rows."""
        engine = Engine(
            _ThisProcess(),
            ttl=settings.ttl,
            max_hold=math.inf,
            max_waiters=settings.max_waiters,
            max_waiters_total=settings.max_waiters_total,
            epoch=settings.fence_epoch,
            turn=settings.turn,
        )
        self.namespace = RowNamespace(engine, settings.prefix)
        self.namespace.look = look
        self._epoch = settings.fence_epoch

    def acquire(self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms) -> Acquisition:
        if terms.ttl != self.namespace.terms.ttl:
            raise ConfigurationError("The backend 'database' has no ttl: leave ttl= out.")
        if terms.max_hold != self.namespace.terms.max_hold:
            raise ConfigurationError("The backend 'database' has no max_hold: leave max_hold= out.")
        local = yield from self.namespace.acquire(names, parker, seconds, terms)
        return None if local is None else RowGrant(local, self.namespace.prefix, self._epoch)


class RowLock(Lock):
    """A lock whose ``with`` block is a transaction, which an error rolls back."""

    tells_loss = False

    def __init__(self, lock: Lock, begin: Begin) -> None:
        super().__init__(lock.client, lock.names, lock.timeout, lock.terms)
        self._begin = begin
        self._open: list[tuple[Owner, ExitStack]] = []

    def __enter__(self) -> Grant:
        deadline = now() + self.timeout
        with ExitStack() as stack:
            grant = super().__enter__()
            stack.push(super().__exit__)
            stack.enter_context(self._begin(grant, lambda: deadline - now()))
            self._opened_block(stack.pop_all())
        return grant

    def _opened_block(self, stack: ExitStack) -> None:
        """Note that the end of the block closes *stack*."""
        with self.client.namespace.entries_mutex:
            self._open.append((current_owner(), stack))

    def __exit__(self, *exc_info: Any) -> None:
        owner = current_owner()
        with self.client.namespace.entries_mutex:
            index = max(index for index, (who, _) in enumerate(self._open) if who == owner)
            _, stack = self._open.pop(index)
        stack.__exit__(*exc_info)

    def _split(self) -> Never:
        raise ConfigurationError(
            f"{self!r} is a row, which a transaction locks, and can't be part of multi_lock(). Write "
            "'with locks.lock(…):' for it, with several names for several rows."
        )

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> Never:
        raise ConfigurationError(_WITH)

    async def aacquire(self, blocking: bool = True, timeout: float | None = None) -> Never:
        raise ConfigurationError(f"{_WITH} In async code write it in a function that sync_to_async() runs.")

    async def __aenter__(self) -> Never:
        await self.aacquire()

    def release(self) -> Never:
        raise ConfigurationError(_WITH)

    async def arelease(self) -> Never:
        raise ConfigurationError(_WITH)


class RowReadLock(RowLock, ReadLock):
    """A read lock whose ``with`` block is a transaction, or part of the transaction of an outer block."""

    def __enter__(self) -> Grant:
        own = blocks.own_grant(self.client.namespace, self.names)
        if own is None:
            return super().__enter__()
        self._opened_block(ExitStack())
        return own


class RowLocks(Locks):
    """A client whose locks are rows: the ``with`` blocks of its locks are transactions.

    *begin*: see `Begin`. *no_rlock*: the error of `rlock`, which rows can't provide.
    """

    def __init__(
        self,
        acquirer: Acquirer,
        timeout: float,
        begin: Begin,
        no_rlock: str,
        at_end: AtEnd | None = None,
    ) -> None:
        super().__init__(acquirer, timeout, at_end)
        self._begin = begin
        self._no_rlock = no_rlock

    async def ainspect(self, name: str, kind: Kind = "lock") -> Never:
        raise ConfigurationError(_LOOK)

    def alist(self, before: str = "") -> Never:
        raise ConfigurationError(_LOOK)

    def lock(self, *names: str, on_push: bool = False, **words: Any) -> Lock:
        """Return a lock whose ``with`` block is a transaction: see `distlock.Locks.lock`.

        *on_push* has no effect on rows.
        """
        return RowLock(super().lock(*names, **words), self._begin)

    def read_lock(self, *names: str, **words: Any) -> ReadLock:
        """Return a read lock whose ``with`` block is a transaction: see `distlock.Locks.read_lock`."""
        return RowReadLock(super().read_lock(*names, **words), self._begin)

    def rlock(self, *names: str, **words: Any) -> Never:
        raise ConfigurationError(self._no_rlock)


_MAKE_TABLE = "Run 'python manage.py migrate distlock' or 'flask distlock create-table'."

#: Opens a connection for a block, to look at the rows and at who has locked them.
Look = Callable[[], AbstractContextManager[Connection]]


class RowNamespace(EngineNamespace):
    may_be_unavailable = False
    #: See `Look`. None: nobody can look at the rows.
    look: Look | None = None

    def refuse_lacking(self, capability: str, wish: str) -> None:
        refuse_lacking("database", self.engine.backend.capabilities, capability, wish)

    def inspect(self, name: str) -> tuple[KeyState, StatusRow | None, str]:
        with self._looking() as connection:
            return row_inspection.key_state(connection, self.prefix, name), None, ""

    def announced(self, before: str) -> Iterator[tuple[str, SeenProcess]]:
        with self._looking() as connection:
            found = list(row_inspection.listed(connection, self.prefix, before))
        return ((seen.row.key, seen) for seen in found if seen.row is not None)

    def break_hold(self, name: str, number: int, transaction: str = "") -> bool:
        # The number is not enough: after a ROLLBACK the next transaction has the same number.
        if not transaction:
            raise ConfigurationError(
                f"Which transaction holds the lock {name!r} is not known, so nothing was broken. PostgreSQL "
                "can't tell a savepoint's until somebody waits. Look again, or end the connection that hangs."
            )
        with self._looking() as connection:
            return row_inspection.end(connection, self.prefix, name, transaction)

    @contextmanager
    def _looking(self) -> Iterator[Connection]:
        if self.look is None:
            raise ConfigurationError("Look at rows that are locks by locks[alias], which knows the database.")
        try:
            with self.look() as connection:
                yield connection
        except LockError:
            raise
        except Exception as error:
            refuse_table(error, _MAKE_TABLE, row_is_lock=True)
            raise BackendUnavailable(
                f"The database does not answer a look at its rows: {words_of(error)}"
            ) from error
