"""Lock services that have readers as people write them: each has one bug."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distlock.backends.base import PERMIT, READ, Acquired, LockRequest
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.service import WINDOW, KeyRecord, MemoryHold, MemoryService, RequestEntry
from tests.testing.planted import misjudging, owned, planted


@misjudging
class ReadersTakeTurns(KeyRecord):
    """A reader is a writer, by another name."""

    def has_room(self, request: LockRequest) -> bool:
        return super().has_room(request) and not (request.mode == READ and self.holds)


@misjudging
class ReadersDisregardWriters(KeyRecord):
    def has_room(self, request: LockRequest) -> bool:
        return request.mode == READ or super().has_room(request)


@misjudging
class WritersDisregardReaders(KeyRecord):
    def has_room(self, request: LockRequest) -> bool:
        return (
            len(owned(self, READ)) == len(self.holds) if request.mode != PERMIT else super().has_room(request)
        )


@planted
class ReadersPassWaitingWriters(MemoryService):
    """As Redisson's do: nothing stops new readers, so writers starve."""

    def request(self, request: LockRequest, backend: MemoryBackend) -> Any:
        record = self._current(request.key)
        if request.mode == READ and record.hold(request.token) is None and owned(record, READ):
            record.queue = [entry for entry in record.queue if entry.request.token != request.token]
            self._grant(
                record, RequestEntry(request, backend, self.now()), self.now(), request.ttl, acknowledged=True
            )
        return super().request(request, backend)


@planted
class AllWaitingReadersEnter(MemoryService):
    """Those behind the next writer, too."""

    def _hand_off(self, record: KeyRecord) -> None:
        super()._hand_off(record)
        if owned(record, READ):
            for entry in [entry for entry in record.queue if entry.request.mode == READ]:
                record.queue.remove(entry)
                self._grant(record, entry, self.now(), WINDOW, acknowledged=False)


@planted
class OnlyTheFirstOfARunEnters(MemoryService):
    def _hand_off(self, record: KeyRecord) -> None:
        if not record.holds:
            behind, record.queue = record.queue[1:], record.queue[:1]
            super()._hand_off(record)
            record.queue += behind


@planted
class ALongRunIsCutOff(MemoryService):
    """So many a script, and nobody lets in the others."""

    def _hand_off(self, record: KeyRecord) -> None:
        if len(owned(record, READ)) < 16:
            behind, record.queue = record.queue[16:], record.queue[:16]
            super()._hand_off(record)
            record.queue += behind


@planted
class TheFirstReaderOutFreesTheKey(MemoryService):
    """One key for all of them, and each deletes it."""

    def release(self, request: LockRequest) -> bool:
        record = self._current(request.key)
        if record.hold(request.token) is not None:
            record.holds = [hold for hold in record.holds if hold.entry.request.token == request.token]
        return super().release(request)


@planted
class TheLastReaderOutTellsNobody(MemoryService):
    def release(self, request: LockRequest) -> bool:
        record = self._current(request.key)
        if owned(record, READ) == record.holds and len(record.holds) == 1:
            for entry in record.queue:
                entry.backend = MemoryBackend("memory://nobody")
        return super().release(request)


@planted
class OneOfARunIsHinted(MemoryService):
    def _grant(
        self, record: KeyRecord, entry: RequestEntry, now: float, ttl: float, acknowledged: bool
    ) -> MemoryHold:
        if owned(record, READ):
            entry.backend = MemoryBackend("memory://nobody")
        return super()._grant(record, entry, now, ttl, acknowledged)


@planted
class NobodyIsEverFollowed(MemoryService):
    def request(self, request: LockRequest, backend: MemoryBackend) -> Any:
        answer = super().request(request, backend)
        return replace(answer, followed=False) if isinstance(answer, Acquired) else answer


@planted
class OnceFollowedAlwaysFollowed(MemoryService):
    def request(self, request: LockRequest, backend: MemoryBackend) -> Any:
        answer = super().request(request, backend)
        if isinstance(answer, Acquired) and request.mode == READ:
            self.__dict__.setdefault("followed", set())
            self.__dict__["followed"] |= {request.token} if answer.followed else set()
            return replace(answer, followed=request.token in self.__dict__["followed"])
        return answer


@planted
class ACancelWakesNobody(MemoryService):
    def cancel(self, request: LockRequest) -> bool:
        record = self._current(request.key)
        behind = [entry for entry in record.queue if entry.request.token != request.token]
        record.queue = []
        held = super().cancel(request)
        self.records[request.key] = record
        record.queue = behind
        return held


@planted
class AHungReaderTakesTheOthersAlong(MemoryService):
    """One lease for all: that of the reader that came first."""

    def _grant(
        self, record: KeyRecord, entry: RequestEntry, now: float, ttl: float, acknowledged: bool
    ) -> MemoryHold:
        hold = super()._grant(record, entry, now, ttl, acknowledged)
        for other in owned(record, READ):
            other.ends = min(other.ends, hold.ends, record.holds[0].ends)
        return hold

    def renew(self, request: LockRequest) -> bool:
        record = self._current(request.key)
        ends = [hold.ends for hold in record.holds]
        held = super().renew(request)
        for hold, before in zip(record.holds, ends, strict=True):
            hold.ends = before if hold.mode == READ else hold.ends
        return held


@planted
class ARenewalIsForAllReaders(MemoryService):
    """As for a hash with one expiry: dead readers stay while others renew it."""

    def renew(self, request: LockRequest) -> bool:
        held = super().renew(request)
        for hold in owned(self._current(request.key), READ) if held else []:
            hold.ends = self.now() + request.ttl
        return held


@planted
class ReadersHaveNoLease(MemoryService):
    def _grant(
        self, record: KeyRecord, entry: RequestEntry, now: float, ttl: float, acknowledged: bool
    ) -> MemoryHold:
        return super()._grant(record, entry, now, 1e9 if entry.request.mode == READ else ttl, acknowledged)


@planted
class AHandedReaderHasALease(MemoryService):
    def _grant(
        self, record: KeyRecord, entry: RequestEntry, now: float, ttl: float, acknowledged: bool
    ) -> MemoryHold:
        mine = entry.request.ttl if entry.request.mode == READ else ttl
        return super()._grant(record, entry, now, mine, acknowledged)


@planted
class ReadersHaveTheNumberOfTheBlock(MemoryService):
    """The first of the last writer's, whose grants have gone on from there."""

    def _grant(
        self, record: KeyRecord, entry: RequestEntry, now: float, ttl: float, acknowledged: bool
    ) -> MemoryHold:
        before = self.last_number
        hold = super()._grant(record, entry, now, ttl, acknowledged)
        if hold.mode == READ:
            hold.number = self.__dict__.get("first", hold.number)
        else:
            self.__dict__["first"] = before + 1
        return hold


@planted
class WritersShareTheNumberOfReaders(MemoryService):
    def _grant(
        self, record: KeyRecord, entry: RequestEntry, now: float, ttl: float, acknowledged: bool
    ) -> MemoryHold:
        hold = super()._grant(record, entry, now, ttl, acknowledged)
        if hold.mode != READ and hold.number > 1:
            hold.number -= 1
        return hold
