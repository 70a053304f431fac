"""Lock services that have permits as people write them: each has one bug."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distlock.backends.base import PERMIT, Acquired, LockRequest
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.service import KeyRecord, MemoryHold, MemoryService, RequestEntry
from tests.testing.planted import misjudging, owned, planted


@misjudging
class HoldsAreCounted(KeyRecord):
    """Not the permits that they have."""

    def has_room(self, request: LockRequest) -> bool:
        return len(self.holds) < request.limit if request.mode == PERMIT else super().has_room(request)


@misjudging
class NobodyHearsOfOtherLimits(KeyRecord):
    def other_limit(self, request: LockRequest) -> int:
        return 0


@misjudging
class TheFirstLimitIsForAll(KeyRecord):
    def has_room(self, request: LockRequest) -> bool:
        first = [hold.entry.request.limit for hold in owned(self, PERMIT)]
        return super().has_room(replace(request, limit=first[0]) if first else request)


@planted
class SmallAsksPassLargeOnes(MemoryService):
    def request(self, request: LockRequest, backend: MemoryBackend) -> Any:
        record = self._current(request.key)
        if request.mode == PERMIT and record.hold(request.token) is None and record.has_room(request):
            record.queue = [entry for entry in record.queue if entry.request.token != request.token]
            self._grant(
                record, RequestEntry(request, backend, self.now()), self.now(), request.ttl, acknowledged=True
            )
        return super().request(request, backend)


@planted
class AFreedPermitWakesEverybody(MemoryService):
    def release(self, request: LockRequest) -> bool:
        for entry in self._current(request.key).queue:
            entry.backend.notified(request.key)
        return super().release(request)


@planted
class OneEntersForSeveralPermits(MemoryService):
    def _hand_off(self, record: KeyRecord) -> None:
        if not record.holds:
            behind, record.queue = record.queue[1:], record.queue[:1]
            super()._hand_off(record)
            record.queue += behind


@planted
class EveryPollTakesAPermit(MemoryService):
    """DECR without a look at who asks."""

    def request(self, request: LockRequest, backend: MemoryBackend) -> Any:
        answer = super().request(request, backend)
        record = self._current(request.key)
        if isinstance(answer, Acquired) and request.mode == PERMIT and len(record.holds) < request.limit:
            other = replace(request, token=f"{request.token}_again_{len(record.holds)}")
            if record.holds[-1].entry.request.token == request.token:
                self._grant(
                    record,
                    RequestEntry(other, backend, self.now()),
                    self.now(),
                    request.ttl,
                    acknowledged=True,
                )
        return answer


class _Counter(KeyRecord):
    too_many = 0

    def has_room(self, request: LockRequest) -> bool:
        return super().has_room(replace(request, limit=request.limit + self.too_many))


class _Counted(MemoryService):
    """Permits as a counter: more of them than the limit says, once too many came back."""

    def _current(self, key: str) -> KeyRecord:
        self.records.setdefault(key, _Counter())
        return super()._current(key)

    def release(self, request: LockRequest) -> bool:
        held = super().release(request)
        record = self.records.get(request.key)
        if isinstance(record, _Counter) and not held and self.comes_back_twice(request):
            record.too_many += 1
        return held

    def comes_back_twice(self, request: LockRequest) -> bool:
        raise NotImplementedError


@planted
class APermitComesBackTwiceAfterItsLease(_Counted):
    """Once by its lease, and once by its late holder: INCR without a look."""

    def comes_back_twice(self, request: LockRequest) -> bool:
        return request.ttl < 1


@planted
class ASecondReleaseGivesAPermit(_Counted):
    def comes_back_twice(self, request: LockRequest) -> bool:
        return request.ttl > 1


@planted
class PermitsNeverComeBack(MemoryService):
    """A crashed holder leaks its permit for ever."""

    def _grant(
        self, record: KeyRecord, entry: RequestEntry, now: float, ttl: float, acknowledged: bool
    ) -> MemoryHold:
        return super()._grant(record, entry, now, 1e9 if entry.request.mode == PERMIT else ttl, acknowledged)


@planted
class OnePermitOfSeveralComesBack(MemoryService):
    def _current(self, key: str) -> KeyRecord:
        record = self.records.setdefault(key, KeyRecord())
        for hold in owned(record, PERMIT):
            if self.now() >= hold.ends and hold.entry.request.permits > 1:
                hold.entry.request = replace(hold.entry.request, permits=hold.entry.request.permits - 1)
                hold.ends = self.now() + 1e9
        return super()._current(key)


@planted
class PermitsHaveOneLease(MemoryService):
    """Each renewal is for all of them."""

    def renew(self, request: LockRequest) -> bool:
        held = super().renew(request)
        for hold in owned(self._current(request.key), PERMIT) if held else []:
            hold.ends = self.now() + request.ttl
        return held


@planted
class AHandedPermitHasALease(MemoryService):
    def _grant(
        self, record: KeyRecord, entry: RequestEntry, now: float, ttl: float, acknowledged: bool
    ) -> MemoryHold:
        mine = entry.request.ttl if entry.request.mode == PERMIT else ttl
        return super()._grant(record, entry, now, mine, acknowledged)
