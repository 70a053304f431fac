"""What ``locks`` of a face has of its default alias, in the words of the core."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from distlock.locks.client import Locks
from distlock.locks.lock import Lock, ReadLock, Semaphore
from distlock.web.settings.problems import DEFAULT_ALIAS


class DefaultAlias(ABC):
    """Clients by alias. Its own methods are those of the default one."""

    @abstractmethod
    def __getitem__(self, alias: str) -> Locks:
        """The client of *alias*. Raises `ConfigurationError`. Connects to nothing."""

    def read_lock(self, *names: str, **words: Any) -> ReadLock:
        """A lock that readers of the default alias share: see `distlock.Locks.read_lock`.

        Example::

            with locks.read_lock("catalogue", timeout=2):
                print("nobody writes")
        """
        return self[DEFAULT_ALIAS].read_lock(*names, **words)

    def write_lock(self, *names: str, **words: Any) -> Lock:
        """Return an exclusive lock, as `lock` does: see `distlock.Locks.write_lock`.

        Example::

            with locks.write_lock("catalogue") as grant:
                grant.downgrade()
        """
        return self[DEFAULT_ALIAS].write_lock(*names, **words)

    def semaphore(self, name: str, *, limit: int, **words: Any) -> Semaphore:
        """A semaphore of the default alias: see `distlock.Locks.semaphore`.

        Example::

            with locks.semaphore("gateway", limit=10):
                print("at most ten at a time")
        """
        return self[DEFAULT_ALIAS].semaphore(name, limit=limit, **words)
