"""Lock services that have readers as people write them: each has one bug."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distlock.backends.base import PERMIT, READ, Acquired, LockRequest
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.record import Entry, Owner, Record
from distlock.backends.memory.service import WINDOW, MemoryService
from tests.testing.planted import misjudging, owned, planted


@misjudging
class ReadersTakeTurns(Record):
    """A reader is a writer, by another name."""

    def has_room(self, request: LockRequest) -> bool:
        return super().has_room(request) and not (request.mode == READ and self.owners)


@misjudging
class ReadersDisregardWriters(Record):
    def has_room(self, request: LockRequest) -> bool:
        return request.mode == READ or super().has_room(request)


@misjudging
class WritersDisregardReaders(Record):
    def has_room(self, request: LockRequest) -> bool:
        return (
            len(owned(self, READ)) == len(self.owners)
            if request.mode != PERMIT
            else super().has_room(request)
        )


@planted
class ReadersPassWaitingWriters(MemoryService):
    """As Redisson's do: nothing stops new readers, so writers starve."""

    def request(self, request: LockRequest, backend: MemoryBackend) -> Any:
        record = self._current(request.key)
        if request.mode == READ and record.owner(request.token) is None and owned(record, READ):
            record.queue = [entry for entry in record.queue if entry.request.token != request.token]
            self._own(record, Entry(request, backend, self.now()), self.now(), request.ttl, acknowledged=True)
        return super().request(request, backend)


@planted
class AllWaitingReadersEnter(MemoryService):
    """Those behind the next writer, too."""

    def _hand_off(self, record: Record) -> None:
        super()._hand_off(record)
        if owned(record, READ):
            for entry in [entry for entry in record.queue if entry.request.mode == READ]:
                record.queue.remove(entry)
                self._own(record, entry, self.now(), WINDOW, acknowledged=False)


@planted
class OnlyTheFirstOfARunEnters(MemoryService):
    def _hand_off(self, record: Record) -> None:
        if not record.owners:
            behind, record.queue = record.queue[1:], record.queue[:1]
            super()._hand_off(record)
            record.queue += behind


@planted
class ALongRunIsCutOff(MemoryService):
    """So many a script, and nobody lets in the others."""

    def _hand_off(self, record: Record) -> None:
        if len(owned(record, READ)) < 16:
            behind, record.queue = record.queue[16:], record.queue[:16]
            super()._hand_off(record)
            record.queue += behind


@planted
class TheFirstReaderOutFreesTheKey(MemoryService):
    """One key for all of them, and each deletes it."""

    def release(self, request: LockRequest) -> bool:
        record = self._current(request.key)
        if record.owner(request.token) is not None:
            record.owners = [owner for owner in record.owners if owner.entry.request.token == request.token]
        return super().release(request)


@planted
class TheLastReaderOutTellsNobody(MemoryService):
    def release(self, request: LockRequest) -> bool:
        record = self._current(request.key)
        if owned(record, READ) == record.owners and len(record.owners) == 1:
            for entry in record.queue:
                entry.backend = MemoryBackend("memory://nobody")
        return super().release(request)


@planted
class OneOfARunIsHinted(MemoryService):
    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        if owned(record, READ):
            entry.backend = MemoryBackend("memory://nobody")
        return super()._own(record, entry, now, ttl, acknowledged)


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

    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        owner = super()._own(record, entry, now, ttl, acknowledged)
        for other in owned(record, READ):
            other.ends = min(other.ends, owner.ends, record.owners[0].ends)
        return owner

    def renew(self, request: LockRequest) -> bool:
        record = self._current(request.key)
        ends = [owner.ends for owner in record.owners]
        held = super().renew(request)
        for owner, before in zip(record.owners, ends, strict=True):
            owner.ends = before if owner.mode == READ else owner.ends
        return held


@planted
class ARenewalIsForAllReaders(MemoryService):
    """As for a hash with one expiry: dead readers stay while others renew it."""

    def renew(self, request: LockRequest) -> bool:
        held = super().renew(request)
        for owner in owned(self._current(request.key), READ) if held else []:
            owner.ends = self.now() + request.ttl
        return held


@planted
class ReadersHaveNoLease(MemoryService):
    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        return super()._own(record, entry, now, 1e9 if entry.request.mode == READ else ttl, acknowledged)


@planted
class AHandedReaderHasALease(MemoryService):
    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        mine = entry.request.ttl if entry.request.mode == READ else ttl
        return super()._own(record, entry, now, mine, acknowledged)


@planted
class ReadersHaveTheNumberOfTheBlock(MemoryService):
    """The first of the last writer's, whose grants have gone on from there."""

    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        before = self.last_number
        owner = super()._own(record, entry, now, ttl, acknowledged)
        if owner.mode == READ:
            owner.number = self.__dict__.get("first", owner.number)
        else:
            self.__dict__["first"] = before + 1
        return owner


@planted
class WritersShareTheNumberOfReaders(MemoryService):
    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        owner = super()._own(record, entry, now, ttl, acknowledged)
        if owner.mode != READ and owner.number > 1:
            owner.number -= 1
        return owner
