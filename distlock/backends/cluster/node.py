"""One node of a cluster: a Redis server that may say that a lock is another one's by now."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from distlock.backends.base import Sink
from distlock.backends.findings import Finding
from distlock.backends.inspectable import Seen
from distlock.backends.redis.address import Address
from distlock.backends.redis.backend import RedisBackend
from distlock.backends.redis.connection import ReplyError
from distlock.backends.redis.failures import unavailable
from distlock.backends.redis.health import examine
from distlock.backends.redis.pending_releases import PendingRelease, PendingReleases
from distlock.backends.redis.pool import Pool, Stale
from distlock.backends.redis.queue_entries import QueueEntries
from distlock.backends.redis.scripts import command
from distlock.backends.weak_sink import WeakSink

_SLOTS = (command("CLUSTER", "SLOTS"),)


class NodeSink(WeakSink):
    """Passes notifications on to *sink*, and sets *doubted* when the node breaks off or comes back."""

    def __init__(self, sink: Sink, doubted: threading.Event) -> None:
        super().__init__(sink)
        self._doubted = doubted

    def missed_notifications(self) -> None:
        self._doubted.set()
        super().missed_notifications()


class Node(RedisBackend):
    _address: Address
    _pool: Pool
    _entries: QueueEntries
    _releases: PendingReleases

    def __init__(self, url: str, party: str, seen: Callable[..., list[Seen]], **options: Any) -> None:
        """*party*: what the process is called at all nodes. *seen*: see `_seen`, of all nodes."""
        self._party = party
        self._everywhere = seen
        super().__init__(url, **options)

    def own_names(self) -> list[str]:
        # The first is of this node alone: each node's subscribers hear what is published at any of them.
        return [*super().own_names(), self._party]

    def _seen(self, processes: Sequence[str], key: str, deadline: float) -> list[Seen]:
        return self._everywhere(processes, key, deadline)

    def examine(self) -> Iterator[Finding]:
        return examine(self.send, self._max_connections, in_cluster=True)

    def replies(self, commands: Sequence[bytes], deadline: float) -> list[tuple[Any]]:
        """To each of *commands*. Raises `BackendUnavailable` for an error."""
        return [(reply,) for reply in self._ask(commands, deadline)]

    def slots(self, deadline: float) -> Any:
        """Return the node's map of all slots. Raises `BackendUnavailable`."""
        try:
            (reply,) = self._pool.exchange(_SLOTS, deadline)
        except Stale:
            (reply,) = self._pool.exchange(_SLOTS, deadline)
        if isinstance(reply, ReplyError):
            raise unavailable(self._address, reply)
        return reply

    def abandon(self, key: str) -> PendingRelease | None:
        """*key* is another node's now. Returns a release of it that wants to be repeated."""
        for request in self._entries.waiting():
            if request.key == key:
                self._entries.forget(request)
        posted = self._releases.of(key)
        if posted is None or not posted.lost:
            return None
        posted.end()
        return posted

    def lost(self) -> list[str]:
        """The keys whose release was sent here and wants to be repeated."""
        return self._releases.lost()
