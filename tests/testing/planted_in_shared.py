"""Lock services that readers or holders of permits share, as people write them: each has one bug."""

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


# -- permits ----------------------------------------------------------------------------------------


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


# -- downgrades -------------------------------------------------------------------------------------


@planted
class ADowngradeIsAReleaseAndARead(MemoryService):
    """In two steps: a writer that waits comes between."""

    def downgrade(self, request: LockRequest) -> bool:
        hold = self._current(request.key).hold(request.token)
        held = self.release(request)
        if held and hold is not None:
            self.request(replace(request, mode=READ), hold.entry.backend)
        return held


@planted
class ADowngradeLetsNobodyIn(MemoryService):
    """It tells nobody: the readers in front wait until it is released."""

    def downgrade(self, request: LockRequest) -> bool:
        record = self._current(request.key)
        waiting, record.queue = record.queue, []
        held = super().downgrade(request)
        self.records[request.key] = record
        record.queue = waiting
        for entry in waiting:
            entry.backend = MemoryBackend("memory://nobody")
        return held


@planted
class ADowngradeDoesNothing(MemoryService):
    def downgrade(self, request: LockRequest) -> bool:
        return self._current(request.key).hold(request.token) is not None


@planted
class ADowngradeCantBeRepeated(MemoryService):
    def downgrade(self, request: LockRequest) -> bool:
        hold = self._current(request.key).hold(request.token)
        return (
            super().downgrade(request)
            and hold is not None
            and bool(hold.entry.request.mode != READ)
            and self._once(hold)
        )

    def _once(self, hold: MemoryHold) -> bool:
        hold.entry.request = replace(hold.entry.request, mode=READ)
        return True


@planted
class AnybodyDowngrades(MemoryService):
    def downgrade(self, request: LockRequest) -> bool:
        holds = self._current(request.key).holds
        return super().downgrade(holds[0].entry.request if holds else request)


@planted
class ADowngradeKeepsItsNumber(MemoryService):
    def downgrade(self, request: LockRequest) -> bool:
        hold = self._current(request.key).hold(request.token)
        number = 0 if hold is None else hold.number
        held = super().downgrade(request)
        if hold is not None:
            hold.number = number
        return held
