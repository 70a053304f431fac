"""``locks["other"]`` and ``locks.lock("product_1")``, as Django's ``caches`` and ``cache``."""

from __future__ import annotations

from distlock.lock import Lock
from distlock.locks import Locks
from distlock.rlock import RLock
from distlock.web.settings import DEFAULT_ALIAS
from django_distlock.conf import services


class LockHandler:
    """The clients of ``settings.DISTLOCK``. Its own methods are those of the default alias."""

    def __getitem__(self, alias: str) -> Locks:
        """The client of *alias*. Raises `ConfigurationError`. Connects to nothing."""
        return services[alias]

    def lock(self, *names: str, timeout: float | None = None, ttl: float | None = None) -> Lock:
        """A lock of the default alias; see `distlock.Locks.lock`."""
        return services[DEFAULT_ALIAS].lock(*names, timeout=timeout, ttl=ttl)

    def rlock(self, *names: str, timeout: float | None = None, ttl: float | None = None) -> RLock:
        """A re-entrant lock of the default alias; see `distlock.Locks.rlock`."""
        return services[DEFAULT_ALIAS].rlock(*names, timeout=timeout, ttl=ttl)

    def close_all(self) -> None:
        """Close every client. They may be used again."""
        services.reset()


locks = LockHandler()
