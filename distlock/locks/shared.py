"""A read lock: any number of readers share it, and it keeps writers out."""

from __future__ import annotations

from distlock.engine.commands import Commands
from distlock.grants.grant import Grant
from distlock.locks import self_deadlock
from distlock.locks.lock import Lock
from distlock.locks.namespace import Client
from distlock.locks.self_deadlock import Entry
from distlock.terms import Terms


class ReadLock(Lock):
    """A lock of `Locks.read_lock`. Each acquisition has a grant of its own.

    A thread or task that reads or writes a name reads it again at once, past a writer that waits. Else each
    of the two would wait for the other. So does a ``with`` inside one of another client of the namespace.
    """

    def _refuse_own(self, entry: Entry) -> None:
        again = self_deadlock.read_again(self._namespace, self.names, enters_kept=self._enters_kept())
        if again is not None:
            entry.namespace = again
        else:
            self_deadlock.refuse_own(
                self._namespace,
                self.names,
                reads=True,
                seconds=self._longest,
                enters_kept=self._enters_kept(),
            )

    def _enter(self, entry: Entry, seconds: float) -> Commands[Grant | None]:
        if entry.namespace is self._namespace:
            return super()._enter(entry, seconds)
        # Another client of this process has it. Our own would ask behind those that wait for that one.
        return entry.namespace.acquire(self.names, entry.parker, seconds, self.terms)


class Semaphore(Lock):
    """A semaphore of `Locks.semaphore`, as `threading.Semaphore` but for all processes. It has no owner.

    A ``with`` inside another one takes a further permit, and `locked` says whether any permit is out.
    """

    def __init__(self, client: Client, names: tuple[str, ...], timeout: float | None, terms: Terms) -> None:
        super().__init__(client, names, timeout, terms)
        self._namespace = client.namespace.semaphores

    def _refuse_own(self, entry: Entry) -> None:
        """Code may have several permits."""
