"""``locks["other"]`` and ``locks.lock("product_1")``, as Django's ``caches`` and ``cache``."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from distlock.lock import Lock
from distlock.locks import Locks
from distlock.rlock import RLock
from distlock.web.settings.problems import DEFAULT_ALIAS
from django_distlock.clients.client import Client
from django_distlock.clients.rows import RowClient
from django_distlock.conf import clients
from django_distlock.guarding.fence import database_of


class LockHandler:
    """The clients of ``settings.DISTLOCK``. Its own methods are those of the default alias."""

    def __init__(self) -> None:
        #: By the client that guards use, which is another one when the settings have changed.
        self._made: WeakKeyDictionary[Locks, Client | RowClient] = WeakKeyDictionary()

    def __getitem__(self, alias: str) -> Client | RowClient:
        """The client of *alias*. Raises `ConfigurationError`. Connects to nothing."""
        guards = clients[alias]
        if (made := self._made.get(guards)) is None:
            settings = clients.settings(alias)
            using = database_of(settings.fence) if settings.row_is_lock else None
            made = Client(guards) if using is None else RowClient(guards, using)
            self._made[guards] = made
        return made

    def lock(self, *names: str, **options: Any) -> Lock:
        """A lock of the default alias; see `Client.lock`."""
        return self[DEFAULT_ALIAS].lock(*names, **options)

    def rlock(self, *names: str, **options: Any) -> RLock:
        """A re-entrant lock of the default alias; see `Client.rlock`."""
        return self[DEFAULT_ALIAS].rlock(*names, **options)

    def close_all(self) -> None:
        """Close every client. They may be used again."""
        clients.reset()


locks = LockHandler()
