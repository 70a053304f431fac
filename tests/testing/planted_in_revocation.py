"""Requests for a lock as people write them: each has one bug, and the kit must find every one."""

from __future__ import annotations

from distlock.backends.base import LockRequest
from distlock.backends.memory.service import MemoryService
from tests.testing.planted import planted


@planted
class RequestsAreForgotten(MemoryService):
    def request_release(self, key: str) -> bool:
        return self.locked(key)


@planted
class SomebodyIsAlwaysAsked(MemoryService):
    def request_release(self, key: str) -> bool:
        super().request_release(key)
        return True


@planted
class RequestsAreForTheName(MemoryService):
    """A flag beside the lock, that nobody takes away."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: set[str] = set()

    def request_release(self, key: str) -> bool:
        self.wanted.add(key)
        return super().request_release(key)

    def renew(self, request: LockRequest) -> bool:
        hold = self._current(request.key).hold(request.token)
        if hold is not None and request.key in self.wanted:
            hold.release_requested = True
        return super().renew(request)


@planted
class RequestsTakeTheLock(MemoryService):
    def request_release(self, key: str) -> bool:
        asked = super().request_release(key)
        for hold in list(self._current(key).holds):
            self.release(hold.entry.request)
        return asked


@planted
class ThoseThatWaitAreAsked(MemoryService):
    def request_release(self, key: str) -> bool:
        for entry in self._current(key).queue:
            entry.backend.release_requested(key, entry.request.token)
        return super().request_release(key)


@planted
class OneReaderIsAsked(MemoryService):
    def request_release(self, key: str) -> bool:
        record = self._current(key)
        others = record.holds[1:]
        record.holds = record.holds[:1]
        asked = super().request_release(key)
        record.holds += others
        return asked
