"""A semaphore: so many may be inside at once as it has permits."""

from __future__ import annotations

from distlock.acquirer import Client
from distlock.entries import Entries, Entry
from distlock.lock import Lock
from distlock.terms import Terms


class Semaphore(Lock):
    """What `Locks.semaphore` returns, as `threading.Semaphore` but for all processes. It has no owner.

    A ``with`` inside another one takes a further permit, and `locked` says whether any permit is out.
    """

    def __init__(self, client: Client, names: tuple[str, ...], timeout: float | None, terms: Terms) -> None:
        super().__init__(client, names, timeout, terms)
        self._namespace = client.namespace.semaphores
        self._entries = Entries(self._namespace)

    def _refuse_own(self, entry: Entry) -> None:
        """Code may have several permits."""
