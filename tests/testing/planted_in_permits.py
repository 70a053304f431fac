"""Lock services that have permits as people write them: each has one bug."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distlock.backends.base import PERMIT, Ask, Held
from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.record import Entry, Owner, Record
from distlock.backends.memory.service import MemoryService
from tests.testing.planted import misjudging, owned, planted


@misjudging
class HoldsAreCounted(Record):
    """Not the permits that they have."""

    def has_room(self, ask: Ask) -> bool:
        return len(self.owners) < ask.limit if ask.mode == PERMIT else super().has_room(ask)


@misjudging
class NobodyHearsOfOtherLimits(Record):
    def other_limit(self, ask: Ask) -> int:
        return 0


@misjudging
class TheFirstLimitIsForAll(Record):
    def has_room(self, ask: Ask) -> bool:
        first = [owner.entry.ask.limit for owner in owned(self, PERMIT)]
        return super().has_room(replace(ask, limit=first[0]) if first else ask)


@planted
class SmallAsksPassLargeOnes(MemoryService):
    def request(self, ask: Ask, backend: MemoryBackend) -> Any:
        record = self._current(ask.key)
        if ask.mode == PERMIT and record.owner(ask.token) is None and record.has_room(ask):
            record.queue = [entry for entry in record.queue if entry.ask.token != ask.token]
            self._own(record, Entry(ask, backend, self.now()), self.now(), ask.ttl, acknowledged=True)
        return super().request(ask, backend)


@planted
class AFreedPermitWakesEverybody(MemoryService):
    def release(self, ask: Ask) -> bool:
        for entry in self._current(ask.key).queue:
            entry.backend.hint(ask.key)
        return super().release(ask)


@planted
class OneEntersForSeveralPermits(MemoryService):
    def _hand_over(self, record: Record) -> None:
        if not record.owners:
            behind, record.queue = record.queue[1:], record.queue[:1]
            super()._hand_over(record)
            record.queue += behind


@planted
class EveryPollTakesAPermit(MemoryService):
    """DECR without a look at who asks."""

    def request(self, ask: Ask, backend: MemoryBackend) -> Any:
        answer = super().request(ask, backend)
        record = self._current(ask.key)
        if isinstance(answer, Held) and ask.mode == PERMIT and len(record.owners) < ask.limit:
            other = replace(ask, token=f"{ask.token}_again_{len(record.owners)}")
            if record.owners[-1].entry.ask.token == ask.token:
                self._own(record, Entry(other, backend, self.now()), self.now(), ask.ttl, acknowledged=True)
        return answer


class _Counter(Record):
    too_many = 0

    def has_room(self, ask: Ask) -> bool:
        return super().has_room(replace(ask, limit=ask.limit + self.too_many))


class _Counted(MemoryService):
    """Permits as a counter: more of them than the limit says, once too many came back."""

    def _current(self, key: str) -> Record:
        self.records.setdefault(key, _Counter())
        return super()._current(key)

    def release(self, ask: Ask) -> bool:
        held = super().release(ask)
        record = self.records.get(ask.key)
        if isinstance(record, _Counter) and not held and self.comes_back_twice(ask):
            record.too_many += 1
        return held

    def comes_back_twice(self, ask: Ask) -> bool:
        raise NotImplementedError


@planted
class APermitComesBackTwiceAfterItsLease(_Counted):
    """Once by its lease, and once by its late holder: INCR without a look."""

    def comes_back_twice(self, ask: Ask) -> bool:
        return ask.ttl < 1


@planted
class ASecondReleaseGivesAPermit(_Counted):
    def comes_back_twice(self, ask: Ask) -> bool:
        return ask.ttl > 1


@planted
class PermitsNeverComeBack(MemoryService):
    """A crashed holder leaks its permit for ever."""

    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        return super()._own(record, entry, now, 1e9 if entry.ask.mode == PERMIT else ttl, acknowledged)


@planted
class OnePermitOfSeveralComesBack(MemoryService):
    def _current(self, key: str) -> Record:
        record = self.records.setdefault(key, Record())
        for owner in owned(record, PERMIT):
            if self.now() >= owner.ends and owner.entry.ask.permits > 1:
                owner.entry.ask = replace(owner.entry.ask, permits=owner.entry.ask.permits - 1)
                owner.ends = self.now() + 1e9
        return super()._current(key)


@planted
class PermitsHaveOneLease(MemoryService):
    """Each renewal is for all of them."""

    def renew(self, ask: Ask) -> bool:
        held = super().renew(ask)
        for owner in owned(self._current(ask.key), PERMIT) if held else []:
            owner.ends = self.now() + ask.ttl
        return held


@planted
class AHandedPermitHasALease(MemoryService):
    def _own(self, record: Record, entry: Entry, now: float, ttl: float, acknowledged: bool) -> Owner:
        mine = entry.ask.ttl if entry.ask.mode == PERMIT else ttl
        return super()._own(record, entry, now, mine, acknowledged)
