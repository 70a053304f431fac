"""Lock services, and requests to release, as people write them: each has one bug."""

from __future__ import annotations

import math
import os
import weakref
from typing import Any

from distlock.backends.base import Acquired, Capabilities, LockRequest, Queued
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.service import WINDOW, KeyRecord, MemoryHold, MemoryService, RequestEntry
from distlock.errors import BackendUnavailable
from tests.testing.planted import planted


@planted
class EverybodyHolds(MemoryService):
    def request(self, request: LockRequest, backend: MemoryBackend) -> Any:
        super().request(request, backend)
        self.last_number += 1
        return Acquired(self.last_number, request.ttl)


@planted
class AnybodyReleases(MemoryService):
    """DEL without comparing the owner."""

    def release(self, request: LockRequest) -> bool:
        holds = self._current(request.key).holds
        return super().release(holds[0].entry.request if holds else request)


@planted
class AnybodyRenews(MemoryService):
    def renew(self, request: LockRequest) -> bool:
        return bool(self._current(request.key).holds)


@planted
class NewcomersBarge(MemoryService):
    """The lock is set free, and the next one to ask has it."""

    def _hand_off(self, record: KeyRecord) -> None:
        for entry in record.queue if not record.holds else []:
            entry.backend.notified(entry.request.key)

    def request(self, request: LockRequest, backend: MemoryBackend) -> Any:
        record = self._current(request.key)
        if not record.holds:
            record.queue = [entry for entry in record.queue if entry.request.token != request.token]
            self._grant(
                record, RequestEntry(request, backend, self.now()), self.now(), request.ttl, acknowledged=True
            )
        return super().request(request, backend)


@planted
class LastComeFirstServed(MemoryService):
    def _hand_off(self, record: KeyRecord) -> None:
        if not record.holds:
            record.queue.reverse()
        super()._hand_off(record)


@planted
class NobodyIsHinted(MemoryService):
    def _grant(
        self, record: KeyRecord, entry: RequestEntry, now: float, ttl: float, acknowledged: bool
    ) -> MemoryHold:
        hold = super()._grant(record, entry, now, ttl, acknowledged)
        entry.backend = MemoryBackend("memory://nobody")
        return hold


@planted
class EveryPollQueues(MemoryService):
    def request(self, request: LockRequest, backend: MemoryBackend) -> Any:
        answer = super().request(request, backend)
        if isinstance(answer, Queued):
            self.records[request.key].queue.append(RequestEntry(request, backend, self.now()))
        return answer


@planted
class TryingQueues(MemoryService):
    def request(self, request: LockRequest, backend: MemoryBackend) -> Any:
        record = self._current(request.key)
        if not request.wait and record.holds:
            record.queue.append(RequestEntry(request, backend, self.now()))
        return super().request(request, backend)


@planted
class NoCancel(MemoryService):
    def cancel(self, request: LockRequest) -> bool:
        return False


@planted
class CancelGivesUpTheHold(MemoryService):
    def cancel(self, request: LockRequest) -> bool:
        held = super().cancel(request)
        if held:
            self.release(request)
        return False


@planted
class EqualFences(MemoryService):
    def _grant(
        self, record: KeyRecord, entry: RequestEntry, now: float, ttl: float, acknowledged: bool
    ) -> MemoryHold:
        hold = super()._grant(record, entry, now, ttl, acknowledged)
        hold.number = 1
        return hold


@planted
class FencesForgetTheBlock(MemoryService):
    """INCR, while the holder numbers its own grants from there."""

    def _grant(
        self, record: KeyRecord, entry: RequestEntry, now: float, ttl: float, acknowledged: bool
    ) -> MemoryHold:
        hold = super()._grant(record, entry, now, ttl, acknowledged)
        self.last_number = hold.number
        return hold


@planted
class EveryPollHasANewFence(MemoryService):
    def request(self, request: LockRequest, backend: MemoryBackend) -> Any:
        answer = super().request(request, backend)
        if isinstance(answer, Acquired):
            self.last_number += 1
            return Acquired(self.last_number, answer.ttl)
        return answer


@planted
class FloorsAreForgotten(MemoryService):
    """The hold is lifted, and the counter is not."""

    def raise_fence(self, request: LockRequest, number: int) -> Any:
        counter = self.last_number
        answer = super().raise_fence(request, number)
        self.last_number = counter
        return answer


@planted
class AnybodyRaisesFloors(MemoryService):
    def raise_fence(self, request: LockRequest, number: int) -> Any:
        holds = self._current(request.key).holds
        return super().raise_fence(holds[0].entry.request if holds else request, number)


@planted
class EveryRaiseIsANewFence(MemoryService):
    def raise_fence(self, request: LockRequest, number: int) -> Any:
        return super().raise_fence(request, max(number, self.last_number))


@planted
class NoExpiry(MemoryService):
    """SETNX without a lifetime."""

    def _grant(
        self, record: KeyRecord, entry: RequestEntry, now: float, ttl: float, acknowledged: bool
    ) -> MemoryHold:
        return super()._grant(record, entry, now, 1e9, acknowledged)


@planted
class RenewalDoesNothing(MemoryService):
    def renew(self, request: LockRequest) -> bool:
        return self._current(request.key).hold(request.token) is not None


@planted
class HandOverIsWorthALease(MemoryService):
    def _grant(
        self, record: KeyRecord, entry: RequestEntry, now: float, ttl: float, acknowledged: bool
    ) -> MemoryHold:
        return super()._grant(record, entry, now, entry.request.ttl if ttl == WINDOW else ttl, acknowledged)


@planted
class AnybodyAcknowledges(MemoryService):
    def acknowledge(self, request: LockRequest, number: int) -> bool:
        return any(hold.number == number for hold in self._current(request.key).holds)


@planted
class AcknowledgementsGrant(MemoryService):
    """A request, by another name."""

    def acknowledge(self, request: LockRequest, number: int) -> bool:
        return isinstance(self.request(request, MemoryBackend("memory://nobody")), Acquired)


@planted
class AcknowledgementsForgetTheNumber(MemoryService):
    def acknowledge(self, request: LockRequest, number: int) -> bool:
        return self.renew(request)


@planted
class AcknowledgementDoesNothing(MemoryService):
    def acknowledge(self, request: LockRequest, number: int) -> bool:
        hold = self._current(request.key).hold(request.token)
        return hold is not None and hold.number == number


class PushesNameAnotherHold(MemoryBackend):
    def handed_off(self, key: str, token: str, number: int, sent: float) -> None:
        super().handed_off(key, token, number + 1, sent)


class NamesFold(MemoryBackend):
    """As a database's collation does: letter case and spaces at the end don't count."""

    def request(self, request: LockRequest, deadline: float = math.inf) -> Any:
        return super().request(
            LockRequest(request.key.rstrip().lower(), request.token, request.ttl, request.span, request.wait)
        )


class ReleaseTwicePopsTwice(MemoryBackend):
    def release(self, request: LockRequest, deadline: float = math.inf) -> bool:
        super().release(request)
        return True


class DeclaresTooLittle(MemoryBackend):
    capabilities = Capabilities(fence=True, read=True, permits=True)


class CloseKeepsADescriptor(MemoryBackend):
    def request(self, request: LockRequest, deadline: float = math.inf) -> Any:
        weakref.finalize(self, os.close, os.open(os.devnull, os.O_RDONLY))
        return super().request(request)


@planted
class CloseKeepsAHandOver(MemoryService):
    """What came to the backend while it left is acknowledged by nobody, and given on by nobody."""

    def leave(self, backend: MemoryBackend) -> None:
        for record in self.records.values():
            record.queue = [entry for entry in record.queue if entry.backend is not backend]


class CloseKeepsTheQueue(MemoryBackend):
    def close(self) -> None: ...


class ClosedForEver(MemoryBackend):
    closed = False

    def request(self, request: LockRequest, deadline: float = math.inf) -> Any:
        if self.closed:
            raise BackendUnavailable("It was closed.")
        return super().request(request)

    def close(self) -> None:
        super().close()
        self.closed = True


class ClosingTwiceFails(MemoryBackend):
    def close(self) -> None:
        super().close()
        del self.service


class ClosingConnects(MemoryBackend):
    """As a close does that says goodbye on a connection which it opens for that."""

    def close(self) -> None:
        super().close()
        weakref.finalize(self, os.close, os.open(os.devnull, os.O_RDONLY))


# -- requests to release ----------------------------------------------------------------------------


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
