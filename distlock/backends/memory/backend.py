"""The backend of a service in memory, which a process's clients with the same ``memory://name`` share."""

from __future__ import annotations

import math
import secrets
import threading
import weakref
from collections.abc import Iterator, Sequence

from distlock.backends.base import Acquired, Busy, Capabilities, LockRequest, Queued, Sink
from distlock.backends.inspectable import KeyState, SeenProcess, StatusRow
from distlock.backends.latches import LatchState
from distlock.backends.memory.service import WINDOW, LatchTable, MemoryService

_services: weakref.WeakValueDictionary[str, MemoryService] = weakref.WeakValueDictionary()
_services_mutex = threading.RLock()


class MemoryLatches:
    """The calls of one client for latches that are kept in a `LatchTable`."""

    process: str
    #: The latches of all clients.
    latches: LatchTable

    def notified(self, key: str) -> None:
        """Handle that the latch *key* was opened or deleted."""

    def make_latch(
        self, key: str, total: int, ttl: float, maker: str, deadline: float = math.inf
    ) -> LatchState:
        return self.latches.make(key, total, ttl, maker)

    def count_latch_down(
        self, key: str, by: int, part: str, life: str = "", deadline: float = math.inf
    ) -> LatchState | None:
        return self.latches.count_down(key, by, part, life)

    def delete_latch(self, key: str, life: str = "", deadline: float = math.inf) -> bool:
        return self.latches.delete(key, life)

    def look_at_latches(
        self, keys: Sequence[str], watch: bool = False, deadline: float = math.inf
    ) -> list[LatchState | None]:
        notify = self.notified if watch else None
        return [self.latches.look(key, self.process, notify) for key in keys]


class MemoryBackend(MemoryLatches):
    """One client's locks in the service that its URL names."""

    capabilities = Capabilities(
        lease=True,
        fence=True,
        inspect=True,
        breaks=True,
        notify=True,
        read=True,
        permits=True,
        latch=True,
    )
    window = WINDOW

    def __init__(self, url: str, service: MemoryService | None = None) -> None:
        if service is None:
            with _services_mutex:
                service = _services.setdefault(url, MemoryService())
        self._sink: Sink | None = None
        self._start_anew(service)

    def _start_anew(self, service: MemoryService) -> None:
        """Become a new client of *service*."""
        self.service, self.latches = service, service.latches
        self.process = secrets.token_hex(8)

    def open(self, sink: Sink) -> None:
        self._sink = sink

    def notified(self, key: str) -> None:
        if self._sink is not None:
            self._sink.notified(key)

    def handed_off(self, key: str, token: str, number: int, sent: float) -> None:
        if self._sink is not None:
            self._sink.handed_off(key, token, number, sent)

    def lost(self, key: str, token: str) -> None:
        if self._sink is not None:
            self._sink.lost(key, token)

    def release_requested(self, key: str, token: str) -> None:
        if self._sink is not None:
            self._sink.release_requested(key, token)

    def request(self, request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        return self.service.request(request, self)

    def cancel(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return self.service.cancel(request)

    def renew(self, requests: Sequence[LockRequest]) -> list[bool]:
        return [self.service.renew(request) for request in requests]

    def acknowledge(
        self, handed: Sequence[tuple[LockRequest, int]], deadline: float = math.inf
    ) -> list[bool]:
        return [self.service.acknowledge(request, number) for request, number in handed]

    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return self.service.release(request)

    def raise_fence(self, request: LockRequest, number: int) -> Acquired | None:
        return self.service.raise_fence(request, number)

    def downgrade(self, request: LockRequest, deadline: float = math.inf) -> bool:
        return self.service.downgrade(request)

    def locked(self, key: str) -> bool:
        return self.service.locked(key)

    def inspect(self, key: str, deadline: float = math.inf) -> KeyState:
        return self.service.inspect(key)

    def request_release(self, key: str, deadline: float = math.inf) -> bool:
        return self.service.request_release(key)

    def break_hold(self, key: str, number: int, deadline: float = math.inf) -> bool:
        return self.service.break_hold(key, number)

    def announce(
        self,
        host: str,
        pid: int,
        rows: Sequence[StatusRow],
        gone: Sequence[str],
        life: float,
        deadline: float = math.inf,
        lease: float = 0.0,
    ) -> bool:
        return self.service.status.publish(self.process, host, pid, rows, gone, life)

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[SeenProcess]:
        return iter(self.service.status.rows_below(before))

    def close(self) -> None:
        self.service.leave(self)
        self._start_anew(self.service)

    def after_fork(self) -> None:
        # The child has a copy of its parent's locks, and must not use them.
        self._start_anew(MemoryService())
