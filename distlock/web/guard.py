"""The guard: lock, BEGIN, view, check, COMMIT, release, in that order. G2 lives here.

A framework says how its transactions are opened (`Transactions`); the order is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeVar

from distlock.grant import Grant
from distlock.locks import Locks
from distlock.owner import Owner, current_owner

R = TypeVar("R")


class Transactions(Protocol):
    """How a framework opens the transactions of one call."""

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        """Raise `ConfigurationError` if a transaction is open that would be committed after the release.

        Called before anything waits. *nested*: another guard, with other names, is around this one.
        """

    def begin(self) -> AbstractContextManager[bool]:
        """Begin, and commit or roll back at the end. Gives whether there is anything to commit."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a guard around the running code holds."""

    client: Locks
    grant: Grant
    #: Threads and tasks that inherit the context did not inherit the lock.
    owner: Owner


_held: ContextVar[tuple[Held, ...]] = ContextVar("distlock_held", default=())


def run(
    client: Locks,
    names: Sequence[str],
    body: Callable[[], R],
    transactions: Transactions,
    *,
    timeout: float | None = None,
    ttl: float | None = None,
) -> R:
    """Run *body* under the locks *names*, in a transaction that is committed before they are released.

    *timeout*, *ttl*: seconds; None: the client's. Names that a guard around this one holds are ours already.
    Raises `LockError`s, and what *body* raises; the transaction is rolled back first, and a lock that was
    lost before COMMIT rolls it back, too.
    """
    around = held()
    wanted = _wanted(client, names, around)
    if not wanted:
        return body()
    transactions.refuse_open(wanted, nested=bool(around))
    with client.lock(*wanted, timeout=timeout, ttl=ttl) as grant:
        token = _held.set((*around, Held(client, grant, current_owner())))
        try:
            with transactions.begin() as commits:
                result = body()
                if commits:
                    # The last moment at which nothing has happened yet.
                    grant.check()
        finally:
            _held.reset(token)
    return result


def held() -> tuple[Held, ...]:
    """What the guards around the running code hold, the outermost first."""
    mine = _held.get()
    if not mine:
        return mine
    owner = current_owner()
    return tuple(one for one in mine if one.owner == owner)


def check_held() -> None:
    """Raise `LockLost` if a guard around the running code has lost its lock: for use just before a COMMIT."""
    for one in held():
        one.grant.check()


def _wanted(client: Locks, names: Sequence[str], around: Sequence[Held]) -> Sequence[str]:
    """Those of *names* that are not held yet. A held one that was lost raises `LockLost`."""
    for one in around:
        if one.client is client and not set(one.grant.names).isdisjoint(names):
            one.grant.check()
            names = [name for name in names if name not in one.grant.names]
    return names
