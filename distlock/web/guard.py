"""The guard: lock, BEGIN, view, check, COMMIT, release, in that order. G2 lives here.

A framework says how its transactions are opened (`Transactions`); the order is ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar

from distlock.current import held, holding
from distlock.grant import Grant
from distlock.locks import Locks
from distlock.web.observer import Observer, Watch, watching

R = TypeVar("R")


class Transactions(Protocol):
    """How a framework opens the transactions of one call."""

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        """Raise `ConfigurationError` if a transaction is open that would be committed after the release.

        Called before anything waits. *nested*: another guard, with other names, is around this one.
        """

    def begin(self) -> AbstractContextManager[bool]:
        """Begin, and commit or roll back at the end. Gives whether there is anything to commit."""


def run(
    client: Locks,
    names: Sequence[str],
    body: Callable[[], R],
    transactions: Transactions,
    *,
    timeout: float | None = None,
    ttl: float | None = None,
    observer: Observer | None = None,
) -> R:
    """Run *body* under the locks *names*, in a transaction that is committed before they are released.

    *timeout*, *ttl*: seconds; None: the client's. *observer*: told what becomes of the lock. Names that a
    guard around this one holds are ours already. Raises `LockError`s, and what *body* raises; the transaction
    is rolled back first, and a lock that was lost before COMMIT rolls it back, too.
    """
    wanted = _wanted(client, names, transactions)
    if not wanted:
        return body()
    with (
        watching(observer, wanted) as watch,
        client.lock(*wanted, timeout=timeout, ttl=ttl) as grant,
        _held(client, grant, transactions, watch) as finish,
    ):
        return finish(body())


async def arun(
    client: Locks,
    names: Sequence[str],
    body: Callable[[], Awaitable[R]],
    transactions: Transactions,
    *,
    timeout: float | None = None,
    ttl: float | None = None,
    observer: Observer | None = None,
) -> R:
    """`run`, for an async *body*."""
    wanted = _wanted(client, names, transactions)
    if not wanted:
        return await body()
    with watching(observer, wanted) as watch:
        async with client.lock(*wanted, timeout=timeout, ttl=ttl) as grant:
            with _held(client, grant, transactions, watch) as finish:
                return finish(await body())


def check_held() -> None:
    """Raise `LockLost` if a guard around the running code has lost its lock: for use just before a COMMIT."""
    for one in held():
        one.grant.check()


@contextmanager
def _held(
    client: Locks, grant: Grant, transactions: Transactions, watch: Watch | None
) -> Iterator[Callable[[R], R]]:
    """Between lock and release: BEGIN, the block, COMMIT. Gives what the result of the block goes through."""
    if watch is not None:
        watch.acquired(grant)
    with holding(client, grant), transactions.begin() as commits:

        def finish(result: R) -> R:
            if commits:
                # The last moment at which nothing has happened yet.
                grant.check()
            return result

        yield finish


def _wanted(client: Locks, names: Sequence[str], transactions: Transactions) -> Sequence[str]:
    """Those of *names* that are not held yet. A held one that was lost raises `LockLost`."""
    around = held()
    for one in around:
        if one.client is client and not set(one.grant.names).isdisjoint(names):
            one.grant.check()
            names = [name for name in names if name not in one.grant.names]
    if names:
        transactions.refuse_open(names, nested=bool(around))
    return names
