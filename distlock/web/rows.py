"""The backend ``database``: the guard without a lock service. The fence's row is the lock.

The row is locked in the view's own transaction, so the lock is as long as the transaction, and there is
nothing that could be lost, renewed or forgotten. This process's callers wait for each other here, first come
first served, and keep no connection meanwhile: one of them waits for the row.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Never

from distlock.backends.base import Ask, Capabilities, Held, Sink
from distlock.clock import now
from distlock.engine.machine import Engine
from distlock.engine.steps import Gate, Steps
from distlock.errors import ConfigurationError
from distlock.fence.issuing import RowGrant
from distlock.grant import Grant
from distlock.lock import Lock
from distlock.locks import Locks
from distlock.owner import Owner, current_owner
from distlock.web.settings.aliases import AliasSettings

#: Begins the transaction that locks the rows, and ends it. The second argument: seconds that are left.
Begin = Callable[[RowGrant, Callable[[], float]], AbstractContextManager[object]]

_WITH = "A row is locked as long as a transaction: write 'with locks.lock(…):'."


class _ThisProcess:
    """For the engine: nobody but this process wants anything."""

    capabilities = Capabilities()

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def open(self, sink: Sink) -> None: ...

    def request(self, ask: Ask, deadline: float = math.inf) -> Held:
        return Held(next(self._numbers))

    def cancel(self, ask: Ask, deadline: float = math.inf) -> bool:
        return False

    def renew(self, asks: Sequence[Ask]) -> list[bool]:
        return [True] * len(asks)

    def release(self, ask: Ask, deadline: float = math.inf) -> bool:
        return True

    def raise_floor(self, ask: Ask, number: int) -> None: ...

    def locked(self, key: str) -> Never:
        raise ConfigurationError("Whether another server has locked a row is not known: try to lock it.")

    def close(self) -> None: ...

    def after_fork(self) -> None: ...


class RowLocks(Locks):
    """A client whose grants are worth something only in a transaction that passes the fence with them."""

    def __init__(self, settings: AliasSettings) -> None:
        engine = Engine(
            _ThisProcess(),
            ttl=settings.ttl,
            max_hold=math.inf,
            max_waiters=settings.max_waiters,
            max_waiters_total=settings.max_waiters_total,
            era=settings.era,
        )
        super().__init__(engine, settings.prefix, settings.timeout)

    def _acquire(self, names: tuple[str, ...], gate: Gate, seconds: float, ttl: float) -> Steps[Grant | None]:
        if ttl != self._engine.ttl:
            raise ConfigurationError("The backend 'database' has no ttl: leave ttl= out.")
        local = yield from super()._acquire(names, gate, seconds, ttl)
        return None if local is None else RowGrant(local, self.prefix, self._engine.era)


class RowLock(Lock):
    """What ``locks.lock(...)`` gives where no guard is around: its ``with`` block is a transaction."""

    def __init__(self, local: Lock, begin: Begin) -> None:
        super().__init__(local._locks, local.names, local._timeout, local._ttl)
        self._local = local
        local.tells_loss = False
        self._begin = begin
        self._open: list[tuple[Owner, ExitStack]] = []
        self._books = threading.RLock()

    def __enter__(self) -> Grant:
        deadline = now() + self._default_timeout()
        with ExitStack() as stack:
            grant = stack.enter_context(self._local)
            assert isinstance(grant, RowGrant)
            stack.enter_context(self._begin(grant, lambda: deadline - now()))
            with self._books:
                self._open.append((current_owner(), stack.pop_all()))
        return grant

    def __exit__(self, *exc_info: Any) -> None:
        owner = current_owner()
        with self._books:
            index = max(index for index, (who, _) in enumerate(self._open) if who == owner)
            _, stack = self._open.pop(index)
        stack.__exit__(*exc_info)

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
