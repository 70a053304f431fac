"""A read lock: any number of readers share it, and it keeps writers out."""

from __future__ import annotations

from distlock import blocks
from distlock.engine.steps import Steps
from distlock.entries import Entry
from distlock.grant import Grant
from distlock.lock import Lock


class ReadLock(Lock):
    """What `Locks.read_lock` returns. Each acquisition has a grant of its own.

    A thread or task that reads or writes a name reads it again at once, past a writer that waits. Else each
    of the two would wait for the other. So does a ``with`` inside one of another client of the namespace.
    """

    def _refuse_own(self, entry: Entry) -> None:
        again = blocks.read_again(self._namespace, self.names)
        if again is not None:
            entry.namespace = again
        else:
            blocks.refuse_own(self._namespace, self.names, reads=True, seconds=self._longest())

    def _enter(self, entry: Entry, seconds: float) -> Steps[Grant | None]:
        if entry.namespace is self._namespace:
            return super()._enter(entry, seconds)
        return self._read_again(entry, seconds)

    def _read_again(self, entry: Entry, seconds: float) -> Steps[Grant | None]:
        """Another client of this process has it. Our own would ask behind those that wait for that one."""
        grant = yield from entry.namespace.acquire(self.names, entry.gate, seconds, self.terms)
        if grant is not None:
            grant.timeout = self.timeout
            entry.grant = grant
            self._entries.granted(entry)
        return grant
