"""What ``locks["alias"]`` gives: a client whose locks are taken before a transaction, not inside one."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from django.conf import settings
from django.core import mail

from distlock.engine.steps import Gate, Steps
from distlock.grant import Fence, Grant
from distlock.lock import Lock
from distlock.locks import Locks
from distlock.rlock import RLock
from distlock.web.nesting import block_waiting
from distlock.web.settings.aliases import AliasSettings
from distlock.web.settings.clients import make_client, warn_if_alone
from django_distlock.clients.blocks import BlockLock, BlockRLock
from django_distlock.clients.pooled import giving_back
from django_distlock.clients.waits import waiting
from django_distlock.guarding.transactions import refuse_open
from django_distlock.signals import fence_lifted, lock_lost

_LINE = (
    "Take the lock first: @distributed_lock(…) on the view, or 'with locks.lock(…):' around "
    "transaction.atomic(), which under ATOMIC_REQUESTS needs @transaction.non_atomic_requests on the view. "
    "Where the lock has nothing to do with the database, write locks.lock(…, in_transaction=True)."
)


class Anywhere(Locks):
    """A client that refuses no transaction. Which threads wait by it is known."""

    def __init__(self, inner: Locks) -> None:
        super().__init__(inner._engine, inner.prefix, inner.timeout)
        self._inner = inner
        self.keeps_out = inner.keeps_out

    def _acquire(self, names: tuple[str, ...], gate: Gate, seconds: float, ttl: float) -> Steps[Grant | None]:
        # Tasks share a thread, which does not wait with them.
        with nullcontext() if gate.may_stall else waiting(self, names):
            return (yield from self._inner._acquire(names, gate, seconds, ttl))


class Client(Locks):
    """`distlock.Locks`, for a site whose databases commit when it can't see them.

    A lock that is taken inside an open transaction is let go before COMMIT: the next server reads what is
    about to change. So that is refused, unless the lock has nothing to do with the database:
    ``locks.lock("printer", in_transaction=True)``. The transactions of `TestCase` don't count.
    """

    def __init__(self, anywhere: Anywhere) -> None:
        super().__init__(anywhere._engine, anywhere.prefix, anywhere.timeout)
        self._anywhere = anywhere
        self.keeps_out = anywhere.keeps_out

    @property
    def place(self) -> object:
        """That of all its locks, also of those inside a transaction."""
        return self._anywhere.place

    @place.setter
    def place(self, place: object) -> None:
        self._anywhere.place = place

    def lock(self, *names: str, in_transaction: bool = False, **options: Any) -> Lock:
        """See `distlock.Locks.lock`. *in_transaction*: it may be taken inside an open transaction."""
        if in_transaction:
            return self._anywhere.lock(*names, **options)
        words = {word: options.pop(word, None) for word in ("timeout", "ttl")}
        return BlockLock(self, *self._checked("lock", names, **words, unknown=options))

    def rlock(self, *names: str, in_transaction: bool = False, **options: Any) -> RLock:
        """See `distlock.Locks.rlock`. *in_transaction*: it may be taken inside an open transaction."""
        if in_transaction:
            return self._anywhere.rlock(*names, **options)
        words = {word: options.pop(word, None) for word in ("timeout", "ttl")}
        return BlockRLock(self, *self._checked("rlock", names, **words, unknown=options))

    def _acquire(self, names: tuple[str, ...], gate: Gate, seconds: float, ttl: float) -> Steps[Grant | None]:
        refuse_open(names, _LINE)
        with block_waiting(self, names, seconds) as most:
            return (yield from self._wait(names, gate, most, ttl))

    def _wait(self, names: tuple[str, ...], gate: Gate, seconds: float, ttl: float) -> Steps[Grant | None]:
        return (yield from self._anywhere._acquire(names, giving_back(gate), seconds, ttl))


def make(of_alias: AliasSettings) -> Client:
    """The client of *of_alias*. Raises `ConfigurationError`; connects to nothing."""

    # Django's tests run without DEBUG, and their set-up gives them an outbox.
    if not settings.DEBUG and not hasattr(mail, "outbox"):
        warn_if_alone(of_alias)

    def lost(grant: Grant, why: str) -> None:
        lock_lost.send_robust(Client, alias=of_alias.alias, names=grant.names, grant=grant, why=why)

    def lifted(grant: Grant, was: Fence) -> None:
        fence_lifted.send_robust(Client, alias=of_alias.alias, names=grant.names, grant=grant, was=was)

    return Client(Anywhere(make_client(of_alias, lost, lifted)))
