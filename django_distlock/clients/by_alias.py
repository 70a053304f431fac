"""``locks["other"]`` is the client of an alias; ``locks`` itself has the methods of the default alias."""

from __future__ import annotations

from typing import Unpack
from weakref import WeakKeyDictionary

from distlock.locks.client import LockOptions, Locks, takes
from distlock.locks.lock import Lock
from distlock.locks.rlock import RLock
from distlock.web.settings.clients import DefaultAlias
from distlock.web.settings.problems import DEFAULT_ALIAS
from django_distlock.clients.client import Client, RowClient
from django_distlock.conf import clients
from django_distlock.guarding.fence import database_of


class LockHandler(DefaultAlias):
    """The clients of ``settings.DISTLOCK``, by alias. Its own methods use the default alias."""

    def __init__(self) -> None:
        #: Keyed by the client that guards use, which is a new one after the settings have changed.
        self._made: WeakKeyDictionary[Locks, Client | RowClient] = WeakKeyDictionary()

    def __getitem__(self, alias: str) -> Client | RowClient:
        """Return the client of *alias*. Does not connect. Raises `ConfigurationError` for bad settings."""
        guards = clients[alias]
        if (made := self._made.get(guards)) is None:
            settings = clients.settings(alias)
            using = database_of(settings.fence) if settings.row_is_lock else None
            made = Client(guards) if using is None else RowClient(guards, using)
            self._made[guards] = made
        return made

    @takes(LockOptions)
    def lock(
        self,
        *names: str,
        on_push: bool = False,
        in_transaction: bool = False,
        **options: Unpack[LockOptions],
    ) -> Lock:
        """Return a lock of the default alias. ``locks["other"].lock(…)`` is one of another alias.

        *names*, *timeout*, *ttl*, *max_hold*, *on_push*, *on_release_requested*:
        as for `distlock.Locks.lock`, which also lists the errors.
        *in_transaction*: True: the lock may be acquired inside an open transaction, because it has nothing to
        do with the database. False: to acquire it there raises `ConfigurationError`, because the lock would
        be released before COMMIT.

        Raises `ConfigurationError` at the end of a ``with`` block that leaves a transaction open, and rolls
        the transaction back.

        Example::

            with locks.lock("product_1") as grant:
                grant.check()
        """
        default = self[DEFAULT_ALIAS]
        return default.lock(*names, on_push=on_push, in_transaction=in_transaction, **options)

    @takes(LockOptions)
    def rlock(self, *names: str, in_transaction: bool = False, **options: Unpack[LockOptions]) -> RLock:
        """Return a re-entrant lock of the default alias.

        *names*, *timeout*, *ttl*, *max_hold*, *on_release_requested*, *in_transaction*: as for `lock`.

        Raises what `lock` raises, and `ConfigurationError` if the lock is a row of the database.

        Example::

            with locks.rlock("product_1") as grant:
                grant.check()
        """
        return self[DEFAULT_ALIAS].rlock(*names, in_transaction=in_transaction, **options)

    def close_all(self) -> None:
        """Close all clients. The next use of an alias opens it again."""
        clients.reset()


locks = LockHandler()
